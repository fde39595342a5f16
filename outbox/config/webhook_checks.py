"""Reads the signing secrets of all accounts, and says at start-up what is wrong with webhooks.

It fails closed: a secret that is missing or in doubt verifies nothing.
"""

from collections.abc import Mapping, Sequence

from idem.outbox.config.credentials import Vault
from idem.outbox.config.findings import Findings, spelled
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.providers import outcome_rules
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.scheme_settings import OWN
from idem.outbox.providers.schemes.adyen import ITEM, LIST, SIGNED
from idem.outbox.providers.schemes.hmac_sha256 import SignaturePlace, parse_template
from idem.outbox.providers.schemes.tries import MOST_TRIES, PUBLIC_KEY, tries
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values.durations import text
from idem.outbox.values.json_pointer import Tokens, render

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
    _check_scheme(findings, name, settings, kept)
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


def _check_scheme(findings: Findings, name: str, settings: ProviderSettings, kept: float) -> None:
    """The signatures of a provider's events. `kept`: seconds for which a delivered event is remembered."""
    webhook, loc = settings.webhook, ("providers", name, "webhook")
    if webhook is None:
        return
    _check_own(findings, loc, webhook)
    if webhook.scheme == "hmac-sha256":
        _check_hmac(findings, loc, webhook)
    if webhook.signs_url:
        _check_urls(findings, name, settings)
    if webhook.scheme == "adyen":
        _check_signed_members(findings, loc, webhook, settings.deployment_tag)
    if webhook.event_path is not None and webhook.batch is None:
        findings.error((*loc, "event_path"), "it does nothing without `events`", "Name the list, or leave it out")
    if not webhook.id_parts and (webhook.batch is not None or not webhook.names_event):
        findings.error(
            (*loc, "event_id"),
            "a delivery holds several events, and nothing tells them apart: all but the first would be repetitions",
            'Say where an event of the list has its id, as event_id = "/id"',
        )
    if webhook.redelivery >= kept:
        replays = "" if webhook.timed else ", and by nothing else a delivery that somebody recorded"
        findings.error(
            (*loc, "redelivery"),
            f"the provider sends an event again for {text(webhook.redelivery)}, and one is known again for "
            f"{text(kept)} only: by that a repetition is known{replays}",
            "Make sweeper.webhook_retention longer",
        )


def _check_own(findings: Findings, loc: tuple[str, ...], webhook: WebhookSettings) -> None:
    everything = frozenset[str]().union(*OWN.values())
    for name in sorted((webhook.model_fields_set & everything) - OWN.get(webhook.scheme, frozenset())):
        findings.error(
            (*loc, name),
            f'it does nothing here: the scheme "{webhook.scheme}" says it itself, or has no such thing',
            "Leave it out",
        )


def _check_hmac(findings: Findings, loc: tuple[str, ...], webhook: WebhookSettings) -> None:
    signed = parse_template(webhook.signed)
    if webhook.header is None:
        findings.error(
            (*loc, "header"),
            "it is missing: nothing says where the signature is",
            'Name the header, as header = "X-Signature"',
        )
    if SignaturePlace.TIMESTAMP in signed and webhook.timestamp_header is None:
        findings.error(
            (*loc, "timestamp_header"), "{timestamp} is signed, and nothing says where it is", "Name its header"
        )
    if webhook.timestamp_header is not None and SignaturePlace.TIMESTAMP not in signed:
        findings.error(
            (*loc, "signed"),
            "the time is not signed, so whoever recorded a delivery can give it any time",
            'Write what the provider signs, as signed = "{timestamp}.{body}", or leave timestamp_header out',
        )
    if SignaturePlace.ID in signed and webhook.id_header is None:
        findings.error((*loc, "id_header"), "{id} is signed, and nothing says where it is", "Name its header")
    if webhook.id_header is not None and SignaturePlace.ID not in signed and not webhook.id_parts:
        findings.warn(
            (*loc, "id_header"),
            "the id is not signed: a delivery that somebody recorded is a new event under another id",
            "Leave it out, and a digest of the body is the id, or name a member of the body as event_id",
        )


def _check_urls(findings: Findings, name: str, settings: ProviderSettings) -> None:
    known = settings.addresses()
    lacking = sorted(settings.accounts.keys() - known.keys())
    if lacking:
        findings.error(
            ("providers", name, "webhook", "url"),
            f"the provider signs the endpoint's address, and nothing says what it is for {', '.join(lacking)}",
            "Copy it from the provider's own page, letter for letter, as "
            f'url = "https://hooks.shop.example/webhooks/{name}"',
        )


def _check_signed_members(
    findings: Findings, loc: tuple[str, ...], webhook: WebhookSettings, tag: DeploymentTag | None
) -> None:
    """Adyen signs eight members of an item: what stands elsewhere may be anybody's."""
    if webhook.batch != (LIST,):
        findings.error((*loc, "events"), f"Adyen signs the items of /{LIST}, and of no other list", "Leave it out")
    keys = list(webhook.key)
    if not keys and tag is not None and tag.key_at is not None:
        keys = [(*webhook.shows, *tag.key_at)]
    places: list[tuple[str, Sequence[Tokens]]] = [
        ("key", keys),
        ("reference", () if webhook.reference is None else (webhook.reference,)),
        ("event_id", webhook.id_parts),
        ("type", () if webhook.type is None else (webhook.type,)),
    ]
    for setting, found in places:
        for place in found:
            if (*webhook.begins, *place) not in {(ITEM, *signed) for signed in SIGNED}:
                findings.error(
                    (*loc, setting),
                    f"Adyen does not sign {render(place)}, so anybody in between could have written it",
                    f"Use one of {', '.join(render(signed) for signed in SIGNED)}",
                )
