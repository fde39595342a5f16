"""What the accounts of a provider and the mark contradict in the rest of its contract, or in an operation."""

from __future__ import annotations

from idem.outbox.config.findings import Findings
from idem.outbox.config.operation_settings import OperationSettings
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.values import json_pointer


def check_accounts(findings: Findings, name: str, settings: ProviderSettings) -> None:
    """Accounts that are missing, travel in the open, or set a header twice."""
    loc = ("providers", name, "accounts")
    if not settings.accounts:
        findings.error(loc, "there is no account", f"Write [providers.{name}.accounts.main] with an origin")
    for account, each in settings.accounts.items():
        if each.is_open:
            findings.add(
                "warning",
                (*loc, account, "origin"),
                "requests and credentials travel unencrypted",
                "Use https, except on the machine itself",
            )
        for header in sorted({header for header in each.sets if each.sets.count(header) > 1}):
            findings.error((*loc, account, "headers"), f"{header} is said twice", "Keep one of them")
        key = settings.key
        if key.carrier == "header" and key.name and key.name.lower() in each.sets:
            findings.error(
                (*loc, account, "headers"), f"{key.name} carries the provider key", "Leave it out: idem sets it"
            )
        if each.signature is not None and each.signature.unsigned:
            findings.add(
                "warning",
                (*loc, account, "signature", "over"),
                f"the signature leaves out {' and '.join(each.signature.unsigned)}: it fits other requests too",
                "Sign what the provider's documentation says; most want path and body",
            )


def check_tag(findings: Findings, name: str, settings: ProviderSettings) -> None:
    """A deployment tag whose place another word of ours has."""
    tag, key = settings.deployment_tag, settings.key
    for place in () if tag is None or key.carrier != "body" else (tag.at, tag.key_at):
        if place is not None and place[0] == key.name:
            findings.error(
                ("providers", name, "deployment_tag"),
                f"the provider key is carried at {json_pointer.render(place)} (key.name)",
                "Give the tag a place of its own, e.g. /metadata/idem_deployment",
            )


def check_headers(findings: Findings, name: str, operation: OperationSettings, provider: ProviderSettings) -> None:
    """A header of an operation that its account or idem itself sets too: no call could be made."""
    accounts = provider.accounts.items()
    used = [each for account, each in accounts if operation.account in (None, account)]
    key = provider.key
    for header in operation.headers:
        if key.carrier == "header" and key.name and header.lower() == key.name.lower():
            findings.error(
                ("operations", name, "headers", header), "it carries the provider key", "Leave it out: idem sets it"
            )
        if any(header.lower() in account.sets for account in used):
            findings.error(
                ("operations", name, "headers", header),
                f"the account at provider {operation.provider} sets it",
                "Keep one of them",
            )
