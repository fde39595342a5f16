"""The requests and responses between the sockets and the bank."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from idem.testing.bank.answers import BankAnswer
from idem.testing.bank.faults import AnswerFault


@dataclass(frozen=True)
class Incoming:
    """The bytes of a request. Header names are lower case. `complete` False: the connection was cut, or the bytes were
    not HTTP; then any part may be empty."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True


@dataclass(frozen=True)
class WireReply:
    """An answer and how it is delivered. `seconds`: between the bytes of a drip; the duration of a stall, None forever.

    `sent` is awaited once the operating system has the whole answer.
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
        """The reply with an answer of the bank; it is JSON unless its headers say otherwise."""
        headers = {"content-type": "application/json", **answer.headers}
        return cls(answer.status, answer.body, headers, delivery, seconds, sent)

    async def was_sent(self) -> None:
        """Await `sent`, if there is one."""
        if self.sent is not None:
            await self.sent()

    @property
    def answers(self) -> bool:
        """Whether any byte of it is sent."""
        silent = self.delivery in (AnswerFault.DROPPED, AnswerFault.RESET)
        return not silent and not (self.delivery is AnswerFault.STALLED and self.seconds is None)


class RequestHandler(Protocol):
    """What a server passes its requests to."""

    async def handle(self, incoming: Incoming) -> WireReply:
        """Handle a complete request. An exception closes the connection without an answer."""
        ...

    async def cut(self, incoming: Incoming) -> None:
        """Note an incomplete request."""
        ...
