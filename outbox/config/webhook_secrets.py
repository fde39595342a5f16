"""The signing secrets of all accounts, read and parsed; and what is wrong with webhooks, said at the start.

Fail closed: what is missing or in doubt verifies nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from idem.outbox.config.credentials import Vault
from idem.outbox.config.findings import Findings, spelled
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.config.scheme_checks import check_scheme
from idem.outbox.providers import outcome_rules
from idem.outbox.providers.schemes.tries import MOST_TRIES, PUBLIC_KEY, tries
from idem.outbox.providers.webhook_settings import WebhookSettings

Secrets = Mapping[str, Mapping[str, tuple[bytes, ...]]]
"""The keys by provider and account."""


def resolve(findings: Findings, vault: Vault, providers: Mapping[str, ProviderSettings]) -> Secrets:
    """Every secret that can be used. A key belongs to one account: shared by two, either could settle the other's."""
    found: dict[str, dict[str, tuple[bytes, ...]]] = {}
    owners: dict[bytes, tuple[str, str]] = {}
    unsaid = WebhookSettings()
    for name, provider in providers.items():
        scheme = (unsaid if provider.webhook is None else provider.webhook).verifier()
        accounts = found.setdefault(name, {})
        for account, below, secret in provider.signing():
            loc = ("providers", name, *below)
            text = vault.text(secret, loc)
            if text is None:
                continue
            try:
                whole = secret.prefix + text
                key = scheme.parse_secret(whole)
            except ValueError as error:
                findings.error(loc, str(error), "Copy it again from where the provider shows it")
                continue
            # Two schemes may make two keys of one text.
            owned = {owners.setdefault(each, (name, account)) for each in (key, whole.encode())}
            owner = next((each for each in owned if each != (name, account)), None)
            if owner is not None:
                findings.error(
                    loc,
                    f"it is the secret of {spelled(('providers', owner[0], 'accounts', owner[1]))} too, so nobody "
                    "could tell whose event it is",
                    "Have the provider make another one for this account",
                )
            elif key not in accounts.get(account, ()):
                accounts[account] = (*accounts.get(account, ()), key)
        if (all_of_them := tries(accounts)) > MOST_TRIES:
            findings.warn(
                ("providers", name, "webhook"),
                f"the address /webhooks/{name} takes no event: it would try {all_of_them} secrets (a public key counts "
                f"as {PUBLIC_KEY}), and an address tries {MOST_TRIES} at most",
                f"Have the provider send the events of each account to /webhooks/{name}/<account>",
            )
    return found


def check_webhook(findings: Findings, name: str, settings: ProviderSettings, kept: float) -> None:
    """What the webhook of a provider lacks, or would not do. `kept`: seconds for which events are remembered."""
    loc = ("providers", name, "webhook")
    for account, each in settings.accounts.items():
        if each.webhook is not None and settings.webhook is None:
            findings.error(
                ("providers", name, "accounts", account, "webhook"),
                "there are signing secrets, but nothing says how the provider's events are read",
                f"Write [providers.{name}.webhook]",
            )
    webhook = settings.webhook
    if webhook is None:
        return
    check_scheme(findings, name, settings, kept)
    if webhook.secrets and len(settings.accounts) > 1:
        findings.error(
            (*loc, "secrets"),
            "the provider has several accounts, and an event may touch only rows of the account that signed it",
            f"Write them as secrets of [providers.{name}.accounts.<account>.webhook]",
        )
    unsigned = sorted(set(settings.accounts) - {account for account, _, _ in settings.signing()})
    if unsigned and not webhook.secrets:
        findings.warn(
            (*loc, "secrets"),
            f"there is no secret for {', '.join(unsigned)}: every event of that account is refused",
            'Say where the provider\'s signing secret is, as secrets = [{env = "BANK_WEBHOOK_SECRET"}]',
        )
    if not settings.events_name_key and webhook.reference is None and settings.object.reference is None:
        findings.error(
            (*loc, "key"),
            "nothing says which call an event is about, so none would ever be matched",
            'Name the member that holds our provider key, as key = "/data/reference"',
        )
    elif not settings.events_name_key:
        findings.warn(
            (*loc, "key"),
            "events are matched by the provider's reference alone, which a call that broke does not have",
            'Name the member that holds our provider key, as key = "/data/reference"',
        )
    if webhook.fetch and settings.lookup.by_id is None and settings.lookup.by_key is None:
        findings.error(
            (*loc, "fetch"),
            "an event would be believed after a look at its object, and there is no look-up",
            'Write one, as lookup.by_id = { path = "/payments/{idem.reference}" }',
        )
    for number, rule in enumerate(settings.outcome):
        if rule.says in outcome_rules.PROOFS and not rule.build(settings.object).recognises:
            findings.warn(
                ("providers", name, "outcome", number, "when"),
                "this rule demands nothing of the object, so no event is ever read by it",
                'Demand its status, as when = { "/status" = "succeeded" }',
            )
