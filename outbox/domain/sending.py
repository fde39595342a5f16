"""What a function that sends without HTTP is given: `def send(request: SendRequest, call: Sending) -> Outcome`.

Such an effect has no trace that could prove anything, so every exception of the function is `Ambiguous`. Only what it
returns is believed, and the one exception that `Sending.start` itself has raised.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from idem.outbox.domain.outcomes import (
    Absent,
    Ambiguous,
    CouldNotAsk,
    LookupOutcome,
    NotExecuted,
    Outcome,
    Pending,
    Proof,
    Refused,
    Succeeded,
)
from idem.outbox.domain.provider import Question
from idem.outbox.values import clock
from idem.outbox.values.errors import LeaseTooShort

ITS_WORDS: Final = frozenset({"transport", "throttled", "config", "request"})
"""The reasons for `NotExecuted` that a send may give; the others are about claims."""


@dataclass(frozen=True, slots=True)
class SendRequest:
    """What is to be sent: the same at every attempt.

    `body`: the frozen bytes, JSON in UTF-8. `key`: the provider key, a UUID that names this effect for ever; hand it
    over wherever the other side can keep it (a file's name, a Message-ID). `account`: of `accounts`, `main` by default.
    """

    operation: str
    account: str
    key: str
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class StartedTwice(Exception):
    """The function wants to send a second time in one call."""


class Sending:
    """The call that is being made: how long it may take, and the last check before its first byte."""

    def __init__(self, *, ends: float, lease_ends: float, needed: float) -> None:
        self._ends = ends
        self._lease_ends = lease_ends
        self._needed = needed
        self.started = False
        self.stopped: LeaseTooShort | None = None

    @property
    def deadline(self) -> float:
        """Seconds that are left, never negative: give them to every connect, read and write as their time-out."""
        return max(0.0, self._ends - clock.boottime())

    def start(self) -> None:
        """The last check: call it immediately before the first byte leaves, after connecting and logging in.

        Raises LeaseTooShort: too little is left of the claim (this process was frozen, the preparations were long). Let
        it through, and the call counts as not made. Raises StartedTwice.
        """
        if self.started or self.stopped is not None:
            raise StartedTwice("a call may send only once: idem decides whether there is another attempt")
        self.check()
        self.started = True

    def check(self) -> None:
        """Raises LeaseTooShort unless the whole deadline and the margin still fit into the lease."""
        now = clock.boottime()
        if now + self._needed > self._lease_ends:
            self.stopped = LeaseTooShort("the deadline and its margin no longer fit into the lease")
        elif now >= self._ends:
            self.stopped = LeaseTooShort("the deadline passed before the call began")
        if self.stopped is not None:
            raise self.stopped


Send: TypeAlias = Callable[[SendRequest, Sending], Outcome | Awaitable[Outcome]]
AskAbout: TypeAlias = Callable[[Question], LookupOutcome | Awaitable[LookupOutcome]]


class StillSending(Exception):
    """The process wants to end, and a send that cannot be ended still runs: nothing may be reported about it."""


def outcome(result: object, cap: float) -> tuple[Outcome, str]:
    """What a send has returned, as far as it can be believed, and a note. `cap`: the longest wait in seconds."""
    match result:
        case Succeeded() | Refused() | Pending():
            return _tidy(result), "send says so"
        case NotExecuted(why=why, retry_after=wait) if why in ITS_WORDS:
            return NotExecuted(why, _wait(wait, cap)), "send says so"
        case NotExecuted(why=why):
            return Ambiguous(), f"send returned NotExecuted({str(why)[:40]!r}): that is not for a send to say"
        case Ambiguous():
            return result, "send says so"
        case _:
            return Ambiguous(), f"send returned {type(result).__name__}, which is not an outcome"


def lookup(result: object, cap: float) -> tuple[LookupOutcome, str]:
    """What a look-up has returned, in the same way."""
    match result:
        case Succeeded() | Refused() | Pending():
            return _tidy(result), "lookup says so"
        case Absent():
            return result, "lookup says so"
        case CouldNotAsk(retry_after=wait):
            return CouldNotAsk(_wait(wait, cap)), "lookup says so"
        case _:
            return CouldNotAsk(), f"lookup returned {type(result).__name__}, which says nothing"


def _tidy(said: Proof) -> Proof:
    """With a reference that is text, and fields that are JSON: the effect stands, with or without them."""
    texts = type(said.reference) in (str, type(None)) and type(said.status) in (str, type(None))
    if texts and type(said.fields) is dict and not said.fields:
        return said
    reference = None if said.reference is None else str(said.reference)
    status = None if said.status is None else str(said.status)
    try:
        fields = json.loads(json.dumps(dict(said.fields), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        fields = {}
    return replace(said, reference=reference, status=status, fields=fields)


def _wait(seconds: object, cap: float) -> float | None:
    return min(max(0.0, float(seconds)), cap) if isinstance(seconds, int | float) and seconds == seconds else None
