"""One delivery of an event, or of several: verified and read. Whose it is, which event, what it says. No I/O."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from idem.outbox.api import reading
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import LOCAL
from idem.outbox.domain.webhook import DeliveryHeaders, Event, OutOfTime, Signed, Unverified
from idem.outbox.observe import telemetry
from idem.outbox.providers.response import VISIBLE
from idem.outbox.providers.schemes.tries import MOST_TRIES, tries
from idem.outbox.values.errors import WebhookRefused

PAYLOAD: Final = "payload"
MOST_FIELDS: Final = 10

LONGEST_ID: Final = 255
"""Characters of an event's id: what tells it from others is never cut short."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified event. `account` is the one whose secret signed it; `event_id` is the same at each delivery.

    `body` is kept so that idem can read it again: of a batch either this event alone, or the whole batch and the
    event's `place` in it. `out_of_time`: genuine, but its time stamp is not near its arrival, so only the provider can
    confirm it.
    """

    provider: str
    account: str
    event_id: str
    event: Event
    headers: DeliveryHeaders = ()
    body: bytes = field(default=b"", repr=False)
    place: int = 0
    out_of_time: bool = False


def secrets_of(catalogue: Catalogue, provider: str, account: str | None) -> dict[str, tuple[bytes, ...]]:
    """The secrets that are tried at this address, by account. Raises WebhookRefused."""
    known = catalogue.providers.get(provider)
    if known is None or provider == LOCAL or (account is not None and account not in known.accounts):
        raise WebhookRefused("unknown_endpoint", "no such provider or account is configured here")
    secrets = {} if known.webhook is None else known.webhook.secrets
    tried = {name: keys for name, keys in secrets.items() if keys and account in (None, name)}
    if not tried:
        raise WebhookRefused(
            "not_configured", "no signing secret is configured for these events, so idem can accept none"
        )
    if tries(tried) > MOST_TRIES:
        raise WebhookRefused(
            "not_configured",
            f"this address has more signing secrets than idem tries for one event; send the events of each account to "
            f"/webhooks/{provider}/ followed by the account's name",
        )
    return tried


def verified(
    catalogue: Catalogue, provider: str, account: str | None, headers: DeliveryHeaders, body: bytes, now: float
) -> tuple[Delivery, ...]:
    """Verify the bytes against every active secret of this address, then read the events: several of a batch.

    `account` None: those of all its accounts. `now`: POSIX seconds of the receipt, because a delivery that waits here
    does not grow too old (IB-106). An event of a batch that has no id of its own could be told from no other, and is
    left out; a delivery of which nothing could be kept is not readable. One that is genuine and out of time is taken
    as such, if its id is signed: under another one it could come any number of times. Raises WebhookRefused.
    """
    tried = secrets_of(catalogue, provider, account)
    known = catalogue.providers[provider]
    assert known.webhook is not None
    try:
        claim = known.webhook.scheme.read(Signed(headers, body))
    except Unverified as error:
        raise WebhookRefused(error.reason, str(error)) from None
    signer: tuple[str, str | None] | None = None
    late: OutOfTime | None = None
    failed = Unverified("signature", "no signature matches an active secret")
    # Every secret is tried, whichever fits: how long it takes tells nobody whose it was.
    for name, keys in tried.items():
        try:
            signer = name, claim.verify(keys, now, known.webhook.urls.get(name))
        except OutOfTime as error:
            signer, late = (name, error.id), error
        except Unverified as error:
            failed = error
    if signer is None:
        raise WebhookRefused(failed.reason, str(failed))
    said = _content(headers, body)
    events = None if said is None else known.read_events(said)
    if said is None or events is None:
        raise WebhookRefused("unreadable", "the body is not JSON, or not the expected batch of events")
    # The id in the headers is that of the whole delivery.
    alone = signer[1] if len(events) == 1 else None
    found: list[Delivery] = []
    refused: WebhookRefused | None = None
    for place, event in enumerate(events):
        if late is not None and not (event.id or alone):
            raise WebhookRefused(late.reason, str(late))
        try:
            event_id = _id(event.id or alone)
        except WebhookRefused as error:
            refused = error
            if len(events) > 1:
                telemetry.webhook_refused(provider, "no_id")
            continue
        kept, at = (said, place) if event.body is None else (event.body, 0)
        found.append(Delivery(provider, signer[0], event_id, event, headers, kept, at, late is not None))
    if refused is not None and not found:
        raise refused
    return tuple(found)


def _content(headers: DeliveryHeaders, body: bytes) -> bytes | None:
    """The JSON of a delivery: the body, or the member `payload` of a form, as GitHub sends it by default."""
    if not any(name == b"content-type" and reading.is_form(value.decode("latin-1")) for name, value in headers):
        return body
    try:
        fields = parse_qsl(body.decode("ascii"), strict_parsing=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return None
    found = [value for name, value in fields if name == PAYLOAD]
    return found[0].encode("utf-8", "replace") if len(found) == 1 else None


def _id(text: str | None) -> str:
    if not text or not VISIBLE.fullmatch(text):
        raise WebhookRefused("unreadable", "the event has no id that idem can store")
    if len(text) > LONGEST_ID:
        raise WebhookRefused("unreadable", f"the event's id has more than {LONGEST_ID} characters")
    return text
