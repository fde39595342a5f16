"""What is wrong with how a provider's events are signed, said at the start."""

from __future__ import annotations

from collections.abc import Sequence

from idem.outbox.config.findings import Findings
from idem.outbox.config.provider_settings import ProviderSettings
from idem.outbox.providers.deployment_tag import DeploymentTag
from idem.outbox.providers.scheme_settings import OWN
from idem.outbox.providers.schemes.adyen import ITEM, LIST, SIGNED
from idem.outbox.providers.schemes.hmac_sha256 import SignaturePlace, parse_template
from idem.outbox.providers.webhook_settings import WebhookSettings
from idem.outbox.values.durations import text
from idem.outbox.values.json_pointer import Tokens, render


def check_scheme(findings: Findings, name: str, settings: ProviderSettings, kept: float) -> None:
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
    for name in sorted((webhook.model_fields_set & everything) - OWN[webhook.scheme]):
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
