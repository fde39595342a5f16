"""The requests and responses between the sockets and the bank."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from idem.testing.bank.answers import BankAnswer
from idem.testing.bank.faults import AnswerFault


@dataclass(frozen=True)
class Incoming:
    """The bytes of a request. Header names are lower case. `complete` False: the line was cut in the middle of it, or
    what came is no HTTP; then any part may be empty."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True


@dataclass(frozen=True)
class WireReply:
    """An answer and what becomes of it. `seconds`: between the bytes of a drip; of a stall, None for ever.

    `sent` is awaited when the answer has been handed to the operating system whole.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    delivery: AnswerFault = AnswerFault.WHOLE
    seconds: float | None = None
    sent: Callable[[], Awaitable[None]] | None = None

    @classmethod
    def of(
        cls,
        answer: BankAnswer,
        delivery: AnswerFault = AnswerFault.WHOLE,
        seconds: float | None = None,
        sent: Callable[[], Awaitable[None]] | None = None,
    ) -> Self:
        """An answer of the bank, which is JSON unless it says otherwise."""
        headers = {"content-type": "application/json", **answer.headers}
        return cls(answer.status, answer.body, headers, delivery, seconds, sent)

    async def was_sent(self) -> None:
        """Await `sent`, if there is one."""
        if self.sent is not None:
            await self.sent()

    @property
    def answers(self) -> bool:
        """Whether any byte of it will leave."""
        silent = self.delivery in (AnswerFault.DROPPED, AnswerFault.RESET)
        return not silent and not (self.delivery is AnswerFault.STALLED and self.seconds is None)


class RequestHandler(Protocol):
    """What a server passes its requests to."""

    async def handle(self, incoming: Incoming) -> WireReply:
        """Work on a whole request. An exception cuts the line without an answer."""
        ...

    async def cut(self, incoming: Incoming) -> None:
        """Take note of a request that did not come in whole."""
        ...
