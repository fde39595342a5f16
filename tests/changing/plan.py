"""What an operator has written in the configuration, as data: one choice for each thing that may be changed.

`Plan.catalogue` is what a daemon makes of it. Two banks stand for the two systems that an origin can name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fix_restore import MEMORY
from fix_settings import with_constants
from fix_spine import BY_ID, ENVIRONMENT, ERRORS, KEYED, KEYLESS, OUTCOME, lookup, operation

from idem import Answer
from idem.errors import ParamsInvalid, Unrenderable
from idem.outbox.config.settings import SweeperSettings
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import Account, KeyRule, LookupRule, ProviderRequest
from idem.outbox.domain.limits import Limits
from idem.outbox.domain.operation import OperationSpec
from idem.outbox.providers.http import HttpProvider
from idem.outbox.providers.template import KEY_TEXT

DAY = 86400.0
PAYS = "pay.main"
"""The operation whose configuration changes."""
BESIDE = "pay.beside"
"""An operation of the same provider and account, whose own configuration stays."""

CHOICES: Mapping[str, tuple[Any, ...]] = {
    # What there is, and where it goes. The first choice of each line is how everything begins.
    "operation": ("here", "gone", "inline"),
    "goes_to": ("keyed/keyed", "keyed/second", "keyless/keyless"),
    "provider": ("here", "gone"),
    "account": ("here", "gone"),
    "origin": (0, 1),
    "credentials": ("its own", "of another account"),
    # The provider's contract: less than what the bank keeps is always allowed, more never.
    "carrier": ("header", "none"),
    "replay": ("stored", "success_only"),
    "retention": (MEMORY, MEMORY / 4, 600.0, 0.0),
    "margin": (180.0, 300.0),
    "schedule": ((5, 30, 120, 600, 3600), (5,), (60, 21600), (1,) * 12),
    "pending_schedule": ((5, 30), (3600,)),
    "pending_limit": (86400.0, 600.0),
    "by_key": (True, False),
    "by_reference": (False, True),
    "horizon": (10.0, 600.0),
    "agree": (2, 1, 3),
    "start_mark": (False, True),
    "late_effects": (False, True),
    "unlisted_4xx": ("hold", "answer"),
    "throttles_before_execution": (False, True),
    "order": ((), ("lookup",), ("replay", "lookup"), ("lookup", "replay")),
    "on_unsettleable": ("operator", "assume_done"),
    "limits": (Limits(), Limits(concurrency=1), Limits(concurrency=1, exact=True), Limits(rate=1000.0)),
    "flight_limit": (60.0, 30.0, 100.0),
    # The operation.
    "params": ("anything", "an odd amount is refused", "a member more is required"),
    "request": ("as it was", "one member more", "with our reference", "never renderable"),
    "answer": (1, 2),
    "fingerprint_without": ((), ("/note",), ("/gone",)),
    "card_data": ("refuse", "allow"),
    "key_ttl": (72 * 3600.0, 2 * DAY, 30 * DAY),
    "answer_ttl": (DAY, 60.0),
    "start_within": (None, 60.0, 2 * DAY),
    "give_up_after": (DAY, 600.0),
    "redrive": ("auto", "none"),
    "max_redrives": (5, 0, 1),
    "retry": ("operator", "client"),
    "while_running": ("conflict", "accepted"),
    "after_expiry": ("new", "refuse"),
    "completes_when": ("final", "exists"),
    # Of the whole installation.
    "kept": (SweeperSettings(), with_constants(SweeperSettings(evidence_retention=86400, webhook_retention=86400,
                                                               provider_answer_retention=3600), batch=1)),
    "handlers": (("first",), (), ("first", "second"), ("second",)),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """One state of the configuration."""

    chosen: Mapping[str, Any] = field(default_factory=lambda: {name: values[0] for name, values in CHOICES.items()})

    def __getitem__(self, name: str) -> Any:
        return self.chosen[name]

    def but(self, **changes: Any) -> Plan:
        return Plan({**self.chosen, **changes})

    def catalogue(self, urls: tuple[str, str]) -> Catalogue:
        """Operations and providers of this configuration; only what `idem config check` lets through."""
        providers = {"keyless": self._keyless(urls)}
        if self["provider"] == "here":
            providers["keyed"] = self._keyed(urls)
        provider, account = self["goes_to"].split("/")
        known = {}
        if self["operation"] != "gone" and account in getattr(providers.get(provider), "accounts", {}):
            known[PAYS] = self._operation(provider, account)
        if "keyed" in providers and "keyed" in providers["keyed"].accounts:
            known[BESIDE] = operation(BESIDE, "keyed")
        return Catalogue(ENVIRONMENT, providers, known)

    def _keyless(self, urls: tuple[str, str]) -> HttpProvider:
        accounts = {"keyless": Account("keyless", urls[0], {"authorization": "Bearer keyless-token"})}
        return HttpProvider(KEYLESS, accounts, OUTCOME, ERRORS, (BY_ID, lookup("reference")))

    def _keyed(self, urls: tuple[str, str]) -> HttpProvider:
        names = ["second"] if self["account"] == "gone" else ["keyed", "second"]
        url = urls[self["origin"]]
        whose = {"keyed": "another"} if self["credentials"] == "of another account" else {}
        tokens = {each: f"{whose.get(each, each)}-token" for each in names}
        accounts = {each: Account(each, url, {"authorization": f"Bearer {token}"}) for each, token in tokens.items()}
        carried = self["carrier"] == "header"
        by_key = self["by_key"] and carried
        key = KeyRule("header", "idempotency-key", self["replay"], retention=self["retention"], margin=self["margin"])
        # What carries no key may be asked about only by what a request of today has in its body.
        by_reference = self["by_reference"] and self["request"] == "with our reference"
        contract = replace(
            KEYED,
            key=key if carried else KeyRule(),
            lookup=LookupRule(by_key=by_key, by_reference=by_reference, by_id=True,
                              horizon=self["horizon"], agree=self["agree"]),
            value_at_risk="none" if self["on_unsettleable"] != "operator" else "some",
            strategies=self["order"] if carried and by_key and self["replay"] == "stored" else (),
            **{name: self[name] for name in (
                "schedule", "pending_schedule", "pending_limit", "start_mark", "late_effects", "unlisted_4xx",
                "throttles_before_execution", "on_unsettleable", "limits", "flight_limit")},
        )  # fmt: skip
        ways = (BY_ID, *([lookup("key")] if by_key else []), *([lookup("reference")] if by_reference else []))
        return HttpProvider(contract, accounts, OUTCOME, ERRORS, ways)

    def _operation(self, provider: str, account: str) -> OperationSpec:
        base = operation(PAYS, provider)
        with_reference = provider == "keyless" or self["request"] == "with our reference"

        def validate(params: Any) -> None:
            if not isinstance(params, dict) or "amount" not in params:
                raise ParamsInvalid([("/amount", "a member is missing")])
            if self["params"] == "an odd amount is refused" and params["amount"] % 2:
                raise ParamsInvalid([("/amount", "it is odd")])
            if self["params"] == "a member more is required":
                raise ParamsInvalid([("/more", "a member is missing")])

        def request(params: Any) -> ProviderRequest:
            if self["request"] == "never renderable":
                raise Unrenderable("no request can be made of it")
            body = {"amount": params["amount"], "currency": "eur"}
            body |= {"reference": KEY_TEXT} if with_reference else {}
            body |= {"description": "one more"} if self["request"] == "one member more" else {}
            return ProviderRequest("POST", "/payments", json=body)

        def answer(outcome: Any, intent: str) -> Answer:
            made = base.answer(outcome, intent)
            return Answer(made.status, json.dumps({**json.loads(made.body), "answer": self["answer"]}).encode())

        return replace(
            base,
            account=account,
            validate=validate,
            request=request,
            answer=answer,
            kind="inline" if self["operation"] == "inline" else "provider",
            **{name: self[name] for name in (
                "fingerprint_without", "card_data", "key_ttl", "answer_ttl", "start_within", "give_up_after", "redrive",
                "max_redrives", "retry", "while_running", "after_expiry", "completes_when")},
        )  # fmt: skip
