"""How one call to a provider ended without a response, and the last check before its first byte."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from idem.outbox.domain.contract import Response
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, Outcome, Seen
from idem.outbox.values.errors import LeaseTooShort

Start: TypeAlias = Callable[[], bool]
"""The compare-and-set of a claim between "started" and "given back" (hazard 32). False: it was given back."""

MarkStart: TypeAlias = Callable[[], Awaitable[bool]]
"""Commits that the call starts, guarded by the claim, for providers without keys. False: the claim is over."""

NEVER_OURS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


@dataclass(frozen=True, slots=True)
class NotSent:
    """Proven that nothing left us. `given_back`: the claim, and not the provider, is the reason."""

    seen: Seen
    given_back: bool

    @property
    def outcome(self) -> Outcome:
        """The outcome of a write that ended so."""
        return NotExecuted("given_back" if self.given_back else "transport")

    @property
    def reached(self) -> bool | None:
        """Whether it shows that the provider answers; None: it says nothing about that."""
        return None if self.given_back else False


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes may have left, and no response came."""

    seen: Seen
    reached: bool = False

    @property
    def outcome(self) -> Outcome:
        """The outcome of a write that ended so."""
        return Ambiguous()


CallEnd: TypeAlias = Response | NotSent | Lost


def is_trouble(ended: CallEnd) -> bool:
    """Whether an ambiguous write that ended so is a sign of trouble at the provider. The end of our own task is not."""
    match ended:
        case Response():
            return ended.status >= 500 or not ended.complete
        case _:
            return ended.seen.error != asyncio.CancelledError.__name__


async def last_check(start: Start, mark_start: MarkStart | None) -> None:
    """Start the claim and mark the start where the provider needs it. Raises LeaseTooShort where the claim is over."""
    if not start():
        raise LeaseTooShort("the claim was given back before the call began")
    if mark_start is not None and not await mark_start():
        raise LeaseTooShort("the claim was gone before its start mark was written")
