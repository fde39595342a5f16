"""The provider for the test of a contract, and its fault switch; users of the suite write a subclass."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from idem.outbox.domain.contract import Account, ProviderRequest
from idem.outbox.domain.provider import Provider
from idem.outbox.domain.webhook import Signed
from idem.testing.providers.errors import NotSupported
from idem.testing.providers.line import LINE_FAULTS, LOOKUP_FAULTS, Line

LONGEST_SLEEP = 5.0
"""Seconds that `World.later` sleeps at most; longer waits need a world whose clock can be advanced."""

SETTLING = 0.5
"""Seconds beyond `late` for the provider's own work."""

WRONG = "idem-wrong-credential"


class Fault(StrEnum):
    """The fault of the next request for an effect. A world may have further ones (`World.further`).

    The first seven are faults of the connection, and a `Line` has them all.
    """

    ACT_THEN_DROP = "act_then_drop"
    """The provider acts, and the connection drops before its answer."""
    DROP_BEFORE_ACTING = "drop_before_acting"
    """The connection drops, and the provider does nothing."""
    STALL = "stall"
    """The provider acts, and its answer does not come within `patience`."""
    ACT_LATE = "act_late"
    """The provider acts after `late` seconds, when the caller has stopped waiting."""
    CUT_BODY = "cut_body"
    """The provider acts, and only a part of its answer arrives."""
    PROXY_PAGE = "proxy_page"
    """A proxy answers with its own page; the provider receives nothing."""
    GATEWAY_PAGE = "gateway_page"
    """The provider acts, and a gateway answers 502 instead."""
    ERROR_AFTER_ACTING = "500_after_acting"
    """The provider acts, and answers 500."""
    ERROR_CACHED = "500_cached"
    """The provider does nothing, and stores a 500 under the key."""
    TOO_MANY_REQUESTS = "429"
    UNAVAILABLE = "503"
    """The provider does nothing, and answers that it is unavailable."""
    IN_FLIGHT = "409"
    """The provider does nothing, and answers that another request with this key is running."""
    DECLINE = "decline"
    """The provider decides against the effect."""
    REFUSED_REQUEST = "refused_request"
    """The provider does not accept the request in this form."""
    PENDING = "pending"
    """The provider has accepted the request, and is working on it."""
    REQUIRES_ACTION = "requires_action"
    """The object exists, and waits for the customer."""


class World(ABC):
    """A provider behind a real socket, and what a test may do to it. Subclass it; each test gets a new one.

    `request` is a valid request of an operation, `another` one that differs from it. `line` is between idem and the
    provider and makes the faults of the connection. `patience`: seconds that a call waits if its answer is held back;
    `late`: seconds after which Fault.ACT_LATE acts, longer than `patience`. `page_size`: how many objects the
    contract's `list` shows on one page. `further`: names of faults that show further statuses of the provider's
    objects.

    A method that the world does not support raises NotSupported, and the tests that need it are skipped.
    """

    patience: float = 1.0
    late: float = 2.0
    page_size: int | None = None
    further: tuple[str, ...] = ()

    def __init__(
        self,
        provider: Provider,
        account: str,
        request: ProviderRequest,
        *,
        another: ProviderRequest | None = None,
        line: Line | None = None,
    ) -> None:
        self.provider = provider
        self.account = account
        self.request = request
        self.another = another
        self.line = line

    @abstractmethod
    def effects(self) -> int:
        """How many effects this account has at the provider, by its own records, without declined and voided ones."""

    def next(self, fault: str) -> None:
        """Set the fault of the next request for an effect (`Fault`, or a name of `further`)."""
        if self.line is None or fault not in LINE_FAULTS:
            raise NotSupported(f'World.next has no "{fault}"')
        self.line.next(fault, late=self.late)

    def next_lookup(self, fault: str) -> None:
        """Set the fault of the next question: 503, 429, proxy_page or cut_body."""
        if self.line is None or fault not in LOOKUP_FAULTS:
            raise NotSupported(f'World.next_lookup has no "{fault}"')
        self.line.next_lookup(fault)

    def later(self, seconds: float) -> None:
        """Let time pass at the provider. It sleeps; override it in a world whose clock can be advanced."""
        if seconds > LONGEST_SLEEP:
            raise NotSupported(f"World.later cannot let {seconds:g} s pass: override it and advance the world's clock")
        time.sleep(seconds)

    def settle_late(self) -> None:
        """Wait until a late request has acted, or would have."""
        time.sleep(self.late + SETTLING)

    def deliveries(self) -> Sequence[Signed]:
        """All webhook deliveries until now, signed now, as the endpoint would get them."""
        raise NotSupported("World.deliveries is not implemented: no delivery can be verified")

    def foreign(self) -> None:
        """Make an effect in this account as another program would: without idem's key and deployment tag."""
        raise NotSupported("World.foreign is not implemented: no other program makes an effect")

    def stranger(self) -> Account:
        """The account with credentials that the provider does not know."""
        account = self.provider.accounts[self.account]
        if account.signer is not None or not account.credentials:
            raise NotSupported("World.stranger is not implemented: the suite cannot spoil this account's credentials")
        return replace(account, credentials={name: _spoiled(text) for name, text in account.credentials.items()})


def _spoiled(text: str) -> str:
    scheme, space, _ = text.partition(" ")
    return f"{scheme} {WRONG}" if space else WRONG
