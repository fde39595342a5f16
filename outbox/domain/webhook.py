"""Events of providers: how they are signed, and what a verified one says. Data and protocols; no I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from idem.outbox.domain.outcomes import Fields, Proof


class Unverified(Exception):
    """A delivery that proves nothing about its sender. `reason` is one word of ours, for a metric."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class OutOfTime(Unverified):
    """A delivery that one of the secrets has signed, and whose time stamp is not near our clock.

    Its sender is the provider. It may have been held up, or it was recorded and is replayed now: so it is worth a
    question to the provider, and is not a proof. `id`: what `ReadDelivery.verify` returns in time, as far as that is
    signed. `away`: seconds from the time stamp to our clock; negative: it lies in the future.
    """

    def __init__(self, detail: str, id: str | None, away: float) -> None:
        super().__init__("timestamp", detail)
        self.id = id
        self.away = away


DeliveryHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]
"""The headers of a delivery as they came, names in lower case."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A delivery as it came: what its sender has signed is made of these bytes.

    `url` is the address under which the provider knows the endpoint, where the configuration says it: some sign it too.
    """

    headers: DeliveryHeaders
    body: bytes
    url: str | None = None


class ReadDelivery(Protocol):
    """A delivery as its scheme has read it, once for all accounts. Nothing in it is proved yet."""

    def verify(self, secrets: Sequence[bytes], now: float, url: str | None) -> str | None:
        """The id that the headers give the event, if this scheme has one there; one of the secrets of an account has
        signed all of the delivery.

        `now`: POSIX seconds of the receipt; `url`: as in `Signed`. Compares in constant time. Costs one look at the
        signed bytes for each secret, however many signatures and items there are, as long as none fits. Raises
        Unverified, and nothing else whatever the bytes are; `OutOfTime`, a kind of it, only where the signature is
        right.
        """
        ...


class Scheme(Protocol):
    """How a provider signs its events. Without state; the secrets belong to the accounts."""

    def parse_secret(self, text: str) -> bytes:
        """The key in a configured secret. Raises ValueError, which never contains it."""
        ...

    def read(self, delivery: Signed) -> ReadDelivery:
        """What a delivery says of itself. What does not depend on a secret is done here, because the secrets of
        many accounts may be tried. Raises Unverified, and nothing else whatever the bytes are.
        """
        ...


def verify(scheme: Scheme, delivery: Signed, secrets: Sequence[bytes], now: float) -> str | None:
    """The same for the secrets of one account: what `ReadDelivery.verify` returns. Raises Unverified, and OutOfTime."""
    return scheme.read(delivery).verify(secrets, now, delivery.url)


@dataclass(frozen=True, slots=True)
class WebhookReply:
    """The response that a provider expects for an accepted delivery; without a body the endpoint says what it did."""

    status: int = 200
    body: bytes | None = None
    media_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class Webhook:
    """How the events of a provider are verified: the scheme, and the active secrets of each account.

    `urls`: the endpoint's address as the provider knows it, by account, for schemes that sign it.
    """

    scheme: Scheme
    secrets: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict, repr=False)
    urls: Mapping[str, str] = field(default_factory=dict)
    reply: WebhookReply = WebhookReply()


@dataclass(frozen=True, slots=True)
class Event:
    """What a verified delivery says; a batch says several. `id` as the body has it; `key` and `reference` may be
    anybody's.

    `wanted`: the contract asks for events of this type. `said` is the proof in it; `note` why it is one, or is none.
    `bare`: it shows no object, so that only the provider can say what has become of it.
    `later`: a later fact about an object that exists (refund, dispute, bounce), which is never a proof; `status` and
    `fields` are what it says. `ours`: it carries this deployment's tag; None where the contract has no tag. `body`: a
    delivery of this event alone, which says the same when it is read again; None: the delivery itself. `kind`: of the
    object, where the contract has kinds. `more_keys`: what else may be our key, in further places.
    """

    id: str | None = None
    type: str | None = None
    wanted: bool = True
    key: str | None = None
    reference: str | None = None
    said: Proof | None = None
    note: str = ""
    bare: bool = False
    later: bool = False
    status: str | None = None
    fields: Fields = field(default_factory=dict)
    ours: bool | None = None
    body: bytes | None = field(default=None, repr=False)
    kind: str | None = None
    more_keys: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Everything in it that may be our key, best first."""
        return self.more_keys if self.key is None else (self.key, *self.more_keys)
