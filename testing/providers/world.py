"""The provider for the test of a contract, and its fault switch; a user of the suite writes it."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from idem.outbox.domain.contract import Account, ProviderRequest
from idem.outbox.domain.provider import Provider
from idem.outbox.domain.webhook import Signed
from idem.testing.providers.errors import NotSupported
from idem.testing.providers.line import LINE_FAULTS, LOOK_FAULTS, Line

LONGEST_SLEEP = 5.0
"""Seconds that `World.later` sleeps; for more the world needs a clock that can be put forward."""

SETTLING = 0.5
"""Seconds beyond `late` for the provider's own work."""

WRONG = "idem-wrong-credential"


class Fault(StrEnum):
    """What the next request that asks for an effect meets. A world may have further ones (`World.further`).

    The first seven are of the line, and a `Line` has them all.
    """

    ACT_THEN_DROP = "act_then_drop"
    """The provider acts, and the line is cut before its answer."""
    DROP_BEFORE_ACTING = "drop_before_acting"
    """The line is cut, and the provider does nothing."""
    STALL = "stall"
    """The provider acts, and its answer does not come within `patience`."""
    ACT_LATE = "act_late"
    """The provider acts after `late` seconds, when nobody waits any more."""
    CUT_BODY = "cut_body"
    """The provider acts, and a part of its answer comes."""
    PROXY_PAGE = "proxy_page"
    """A proxy answers with a page of its own; the provider hears nothing."""
    GATEWAY_PAGE = "gateway_page"
    """The provider acts, and a gateway answers 502 in its place."""
    ERROR_AFTER_ACTING = "500_after_acting"
    """The provider acts, and answers 500 itself."""
    ERROR_CACHED = "500_cached"
    """The provider does nothing, and keeps a 500 under the key."""
    TOO_MANY_REQUESTS = "429"
    UNAVAILABLE = "503"
    """The provider says that it is unavailable, and does nothing."""
    IN_FLIGHT = "409"
    """The provider says that another request with this key is running, and does nothing."""
    DECLINE = "decline"
    """The provider decides against the effect."""
    REFUSED_REQUEST = "refused_request"
    """The provider does not take the request as it is."""
    PENDING = "pending"
    """The provider has accepted, and is working."""
    REQUIRES_ACTION = "requires_action"
    """The object exists, and waits for somebody."""


class World(ABC):
    """A provider behind a real socket, and what a test may do to it. Subclass it; each test gets a new one.

    `request` is a valid request of an operation, `another` one that differs from it. `line` stands between idem and the
    provider and makes the faults of the line. `patience`: seconds for which a call waits where its answer is held back;
    `late`: seconds after which Fault.ACT_LATE acts, longer than `patience`. `page_size`: how many objects the
    contract's `list` shows on one page. `further`: names of faults that show further statuses of the provider's
    objects.

    What the world cannot do raises NotSupported, and what needs it is skipped.
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
        """How many effects stand at the provider in this account, by its own books; what was declined or voided does
        not count."""

    def next(self, fault: str) -> None:
        """Let the next request that asks for an effect meet this fault (`Fault`, or a name of `further`)."""
        if self.line is None or fault not in LINE_FAULTS:
            raise NotSupported(f'World.next has no "{fault}"')
        self.line.next(fault, late=self.late)

    def next_look(self, fault: str) -> None:
        """Let the next question meet this fault: 503, 429, proxy_page or cut_body."""
        if self.line is None or fault not in LOOK_FAULTS:
            raise NotSupported(f'World.next_look has no "{fault}"')
        self.line.next_look(fault)

    def later(self, seconds: float) -> None:
        """Let so much time pass at the provider. Sleeps; a world whose clock can be put forward does that."""
        if seconds > LONGEST_SLEEP:
            raise NotSupported(f"World.later cannot let {seconds:g} s pass: put the clock of the world forward there")
        time.sleep(seconds)

    def settle_late(self) -> None:
        """Wait until what was to act late has done so, or has not."""
        time.sleep(self.late + SETTLING)

    def deliveries(self) -> Sequence[Signed]:
        """The webhook deliveries of everything until now, signed now, as the endpoint would get them."""
        raise NotSupported("World.deliveries is not there: no delivery can be verified")

    def foreign(self) -> None:
        """Somebody else makes an effect in this account, without idem's key and mark."""
        raise NotSupported("World.foreign is not there: nobody else makes an effect")

    def stranger(self) -> Account:
        """The account with credentials that the provider does not know."""
        account = self.provider.accounts[self.account]
        if account.signer is not None or not account.credentials:
            raise NotSupported("World.stranger is not there: this account's credentials cannot be spoiled from outside")
        return replace(account, credentials={name: _spoiled(text) for name, text in account.credentials.items()})


def _spoiled(text: str) -> str:
    scheme, space, _ = text.partition(" ")
    return f"{scheme} {WRONG}" if space else WRONG
