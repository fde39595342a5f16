"""Providers that idem knows: `kind = "stripe"` and what stands behind it, laid under the user's own table."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

from idem.outbox.config.findings import Findings

ORIGINS: Final = {"stripe": "https://api.stripe.com"}
"""The kinds, and where their accounts are if nothing else is written."""

MAIN: Final = "main"
"""The account that `secret_key` of a provider makes."""


def expanded(findings: Findings, name: str, table: Any) -> Any:
    """The table of a provider with the facts of its kind under it; as it is where it names none.

    Tables are laid over each other member by member; everything else that the user writes takes the place of the fact,
    and the user's rules come before those of the kind. Facts about webhooks count only where the user has one.
    """
    if not isinstance(table, Mapping):
        return table
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in ORIGINS:
        return table
    facts = dict(_facts(kind))
    accounts = table.get("accounts")
    own = accounts.values() if isinstance(accounts, Mapping) else ()
    if "webhook" not in table and not any(isinstance(each, Mapping) and "webhook" in each for each in own):
        facts.pop("webhook", None)
    return _laid_over(facts, _with_accounts(findings, name, table, ORIGINS[kind]))


def _with_accounts(findings: Findings, name: str, table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """With the origin that an account leaves out, and `secret_key` as the authorization that it stands for."""
    changed = dict(table)
    key, accounts = changed.pop("secret_key", None), changed.get("accounts")
    if key is not None:
        if accounts:
            findings.error(
                ("providers", name, "secret_key"),
                "there are accounts too, and nothing says whose it is",
                f"Write it into [providers.{name}.accounts.<account>]",
            )
        else:
            accounts = {MAIN: {"secret_key": key}}
    if isinstance(accounts, Mapping):
        changed["accounts"] = {
            account: _account(findings, (name, account), each, origin) if isinstance(each, Mapping) else each
            for account, each in accounts.items()
        }
    return changed


def _account(findings: Findings, names: tuple[str, str], table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    changed = {"origin": origin, **table}
    key = changed.pop("secret_key", None)
    if key is None:
        return changed
    if "authorization" in changed:
        findings.error(
            ("providers", names[0], "accounts", names[1], "secret_key"),
            "there is authorization too",
            "Keep one of them",
        )
    changed["authorization"] = {"prefix": "Bearer ", **key} if isinstance(key, Mapping) else key
    return changed


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        before = under.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[name] = _laid_over(before, value)
        elif name == "outcome" and isinstance(before, list) and isinstance(value, list):
            merged[name] = [*value, *before]
        else:
            merged[name] = value
    return merged


@cache
def _facts(kind: str) -> Mapping[str, Any]:
    text = resources.files("idem.outbox.providers").joinpath("presets", f"{kind}.toml").read_text("utf-8")
    return tomllib.loads(text)
