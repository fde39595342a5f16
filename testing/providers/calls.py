"""The calls of the suite. Each goes through a lane like a daemon's call, over a real socket, and its effects are
counted.

There is no daemon and no database; `SentCall` holds what a row would hold.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar, cast
from uuid import uuid4

from idem.outbox.calls.lane import Lane
from idem.outbox.domain.contract import Account, FrozenRequest, ProviderRequest, Response
from idem.outbox.domain.outcomes import Ambiguous, LookupOutcome, Outcome, Pending, Refused, Seen, Succeeded, name
from idem.outbox.domain.provider import Item, Provider, Question
from idem.outbox.providers.send import SendProvider
from idem.outbox.values import clock
from idem.testing.providers.errors import applies, must, world_must
from idem.testing.providers.line import tls
from idem.testing.providers.observed import Observed
from idem.testing.providers.world import Fault, World

Found = TypeVar("Found")

HELD_BACK = frozenset({Fault.STALL, Fault.ACT_LATE})
"""Faults after which no answer comes: the call waits only for `World.patience`."""

EDGE = 1.0
"""Seconds to wait beyond a horizon, because a provider may round its times."""

AROUND = 300.0
"""Seconds added to a period for the provider's list on both sides: the provider's clock may differ from ours."""


@dataclass(frozen=True)
class SentCall:
    """One send. `made`: how many effects it had when it was over; `at`: POSIX seconds by the world's clock."""

    key: str
    frozen: FrozenRequest
    outcome: Outcome
    seen: Seen
    made: int
    at: float
    answers: tuple[Response, ...] = ()

    @property
    def word(self) -> str:
        """The outcome in one word, and what the lane saw of it."""
        why = self.seen.note or self.seen.error
        return f"{name(self.outcome)} (HTTP {self.seen.http_status}{', ' + why if why else ''})"

    @property
    def reference(self) -> str | None:
        """The provider's reference, if the outcome has one."""
        return getattr(self.outcome, "reference", None)

    @property
    def proves(self) -> bool:
        """Whether it is proven that the object exists or that the provider decided against it."""
        return isinstance(self.outcome, Succeeded | Pending | Refused)


class Calls:
    """The calls of one test in its world. `heard`: every answer so far, as the lane received it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.provider = world.provider
        self.contract = world.provider.contract
        account = self.provider.accounts[world.account]
        self.account = self._through_the_line(account)
        self.passed = 0.0
        self.heard: list[Response] = []

    def over_http(self) -> None:
        """Raises NotSupported for a provider with its own function (`send=`): its answers are values."""
        applies(not isinstance(self.provider, SendProvider), "a function sends to this provider: no HTTP answer")

    # Sending.

    def freeze(self, key: str, request: ProviderRequest | None = None) -> FrozenRequest:
        """The frozen request of the world's `request` under a key."""
        return self.provider.freeze(request or self.world.request, key)

    def send(
        self,
        fault: str | None = None,
        *,
        again: SentCall | None = None,
        key: str | None = None,
        request: ProviderRequest | None = None,
        account: Account | None = None,
    ) -> SentCall:
        """A first send, or with `again` the same bytes once more. It sets the fault first; NotSupported if the world
        does not have it."""
        key = key or (str(uuid4()) if again is None else again.key)
        frozen = self.freeze(key, request) if again is None else again.frozen
        if fault is not None:
            self.world.next(fault)
        before, at = self.world.effects(), time.time() + self.passed
        provider = Observed(self.provider, deadline=self.world.patience if fault in HELD_BACK else None)
        outcome, seen = self._in_lane(
            provider, account, lambda lane: lane.send(key, frozen, lease_ends=_lease(), start=lambda: True)
        )
        answers = tuple(provider.answers)
        return SentCall(key, frozen, outcome, seen, self.world.effects() - before, at, answers)

    def made(self) -> SentCall:
        """A healthy send, which has one effect and whose answer can be read."""
        sent = self.send()
        world_must(sent.made == 1, f"a healthy call had {sent.made} effects by World.effects, not 1 ({sent.word})")
        must(isinstance(sent.outcome, Succeeded | Pending), "outcome", f"a healthy call is read as {sent.word}")
        return sent

    def lost(self, fault: str) -> SentCall:
        """A send that acts and whose answer is lost."""
        sent = self.send(fault)
        world_must(sent.made == 1, f"the fault {fault} must act once, but it had {sent.made} effects")
        return sent

    def wait(self, seconds: float) -> None:
        """Let time pass at the provider."""
        if seconds > 0:
            self.world.later(seconds)
            self.passed += seconds

    def past_the_horizon(self) -> None:
        """Wait until look-ups must show every effect."""
        self.wait(self.contract.lookup.horizon and self.contract.lookup.horizon + EDGE)

    def never_sent(self) -> SentCall:
        """A call with a new key, which is not sent."""
        key = str(uuid4())
        return SentCall(key, self.freeze(key), Ambiguous(), Seen(), 0, time.time() + self.passed)

    # Asking.

    def question(self, sent: SentCall, reference: str | None = None) -> Question:
        """The question that the row of this send would ask."""
        return Question(
            sent.key, reference, False, sent.at, sent.frozen.method, sent.frozen.path, headers=sent.frozen.headers
        )

    def ways(self, sent: SentCall) -> tuple[FrozenRequest, ...]:
        """The ways to ask about a call whose answer was lost. Raises NotSupported if there are none."""
        found = self.provider.questions(self.question(sent))
        applies(bool(found), "lookup: this contract cannot look up a call whose reference is unknown")
        return found

    def by_id(self, sent: SentCall, reference: str) -> tuple[FrozenRequest, ...]:
        """The ways to ask that need a reference."""
        without = self.provider.questions(self.question(sent))
        return tuple(each for each in self.provider.questions(self.question(sent, reference)) if each not in without)

    def lookup(
        self, question: Question, way: FrozenRequest, account: Account | None = None
    ) -> tuple[LookupOutcome, tuple[Response, ...]]:
        """Ask in this way, through all pages; returns the look and the answers."""
        provider = Observed(self.provider, way=way)
        lookup, _ = self._in_lane(provider, account, lambda lane: lane.ask(question, lease_ends=_lease()))
        return lookup, tuple(provider.lookups)

    def lookups(self, sent: SentCall, account: Account | None = None) -> Iterator[tuple[FrozenRequest, LookupOutcome]]:
        """What each of the `ways` shows about a call. Raises NotSupported if there are none."""
        for way in self.ways(sent):
            yield way, self.lookup(self.question(sent), way, account)[0]

    def cancel(self, sent: SentCall) -> tuple[LookupOutcome, Seen]:
        """Cancel the call by its key."""
        question = self.question(sent)
        return self._in_lane(Observed(self.provider), None, lambda lane: lane.cancel(question, lease_ends=_lease()))

    def listed(self, since: float, until: float) -> tuple[list[Item], int]:
        """Everything in the provider's list of this period, and on how many pages."""
        provider = Observed(self.provider)

        async def work(lane: Lane) -> list[Item]:
            return [item async for item in lane.list(since, until)]

        return self._in_lane(provider, None, work), provider.pages

    def _through_the_line(self, account: Account) -> Account:
        return account if self.world.line is None else replace(account, origin=self.world.line.url)

    def _in_lane(self, provider: Observed, account: Account | None, work: Callable[[Lane], Awaitable[Found]]) -> Found:
        # A new lane for each call, so that no breaker, pace or connection of an earlier call affects it.
        chosen = self.account if account is None else self._through_the_line(account)

        async def run() -> Found:
            lane = Lane(cast(Provider, provider), chosen, slots=1, margin=1.0, tls=tls())
            try:
                return await work(lane)
            finally:
                self.heard += provider.heard
                await lane.close()

        return asyncio.run(run())


def shown(lookup: LookupOutcome) -> str:
    """A look in one word, with its reference."""
    reference = getattr(lookup, "reference", None)
    return name(lookup) if reference is None else f"{name(lookup)} {reference}"


def settles(lookup: LookupOutcome) -> bool:
    """Whether the look proves that the provider has the object or decided against it."""
    return isinstance(lookup, Succeeded | Pending | Refused)


def around(moments: list[float]) -> tuple[float, float]:
    """A period for the provider's list that includes all these moments."""
    return min(moments) - AROUND, max(moments) + AROUND


def _lease() -> float:
    return clock.boottime() + 3600
