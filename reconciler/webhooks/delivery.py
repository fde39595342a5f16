"""One delivery of an event, verified and read: whose it is, which event, what it says. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from idem.outbox.catalogue import Catalogue
from idem.outbox.contract import Event, Headers, Unverified
from idem.outbox.errors import IdemError
from idem.outbox.providers import nobody
from idem.outbox.providers.document import VISIBLE

LONGEST_ID: Final = 255
"""Characters of an event's id: what tells it from others is never cut short."""


class NotTaken(IdemError):
    """A delivery that is not taken. `reason` is one word of ours, for a metric."""

    reason = "refused"


class NoSuchEndpoint(NotTaken):
    """Nobody here has this provider or account."""

    reason = "unknown_endpoint"


class NotConfigured(NotTaken):
    """No secret is configured, so nothing can be verified."""

    reason = "not_configured"


class NotVerified(NotTaken):
    """No active secret has signed it now."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class NotReadable(NotTaken):
    """It is signed as it should be, and still no event of this provider."""

    reason = "unreadable"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A verified delivery. `account` is the one whose secret has signed it; `event_id` is the same at each delivery."""

    provider: str
    account: str
    event_id: str
    event: Event
    headers: Headers = ()
    body: bytes = field(default=b"", repr=False)


def endpoint(catalogue: Catalogue, provider: str, account: str | None) -> dict[str, tuple[bytes, ...]]:
    """The secrets that are tried at this address, by account. Raises NoSuchEndpoint, NotConfigured."""
    known = catalogue.providers.get(provider)
    if known is None or provider == nobody.NAME or (account is not None and account not in known.accounts):
        raise NoSuchEndpoint("there is no such provider or account here")
    secrets = {} if known.webhook is None else known.webhook.secrets
    tried = {name: keys for name, keys in secrets.items() if keys and account in (None, name)}
    if not tried:
        raise NotConfigured("no signing secret is configured for these events, so none can be taken")
    return tried


def verified(
    catalogue: Catalogue, provider: str, account: str | None, headers: Headers, body: bytes, now: float
) -> Delivery:
    """Verify the bytes against every active secret of this address, then read them.

    `account` None: those of all its accounts. `now`: POSIX seconds of the receipt, because a delivery that waits here
    does not grow too old (IB-106). Raises NotTaken.
    """
    tried = endpoint(catalogue, provider, account)
    known = catalogue.providers[provider]
    assert known.webhook is not None
    signer: tuple[str, str | None] | None = None
    failed = Unverified("signature", "no signature fits an active secret")
    # Every secret is tried, whichever fits: how long it takes tells nobody whose it was.
    for name, keys in tried.items():
        try:
            signer = name, known.webhook.scheme.verify(headers, body, keys, now)
        except Unverified as error:
            failed = error
    if signer is None:
        raise NotVerified(failed.reason, str(failed))
    event = known.read_event(body)
    if event is None:
        raise NotReadable("the body is no JSON")
    event_id = event.id or signer[1]
    if not event_id or not VISIBLE.fullmatch(event_id):
        raise NotReadable("the event has no id that could be kept")
    if len(event_id) > LONGEST_ID:
        raise NotReadable(f"the event's id has more than {LONGEST_ID} characters")
    return Delivery(provider, signer[0], event_id, event, headers, body)
