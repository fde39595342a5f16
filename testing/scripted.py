"""The bank with short methods for the next fault."""

from collections.abc import Sequence
from typing import Any

from idem.testing.bank import Bank, BankSettings, Payment, Received, Request
from idem.testing.bank import BankAccount as BankAccount
from idem.testing.bank.shape import BankShape


def writes(request: Received) -> bool:
    """Whether a request asks for an effect."""
    return request.method != "GET"


def lookups(request: Received) -> bool:
    """Whether a request only asks."""
    return request.method == "GET"


class ScriptedBank(Bank):
    """A bank that behaves until a test says otherwise. Each word is about the next request that asks for an effect, or
    the next `times` of them; several words are played in their order. `script` and `when` have more.

    A replay under the same key is a request too: the bank answers it from its memory, as the contract promises, and
    the word that it meets is about the line, not about a second effect.
    """

    def __init__(self, settings: BankSettings | None = None) -> None:
        super().__init__(settings or BankSettings(durable=False, accounts=(BankAccount(shape=BankShape.own()),)))

    def act_then_drop(self, times: int = 1) -> None:
        """The bank makes the payment and hangs up without an answer: the timeout after the charge."""
        self._next("act_then_drop", times)

    def drop_before_acting(self, times: int = 1) -> None:
        """The bank reads the request, does nothing and hangs up: the same line, and no charge."""
        self._next("drop_before_acting", times)

    def decline(self, times: int = 1) -> None:
        """A decision against the payment: an answer, not an error."""
        self._next("decline", times)

    def refuse_request(self, times: int = 1) -> None:
        """422 in the provider's own error shape, nothing done: the request itself is wrong."""
        self._next("422_before_acting", times)

    def require_action(self, seconds: float = 86400.0, times: int = 1) -> None:
        """The payment exists and waits for the customer; it succeeds after `seconds` of the bank's clock."""
        self._next(f"requires_action:{seconds:g}", times)

    def accept_and_work(self, seconds: float = 86400.0, times: int = 1, *, then_decline: bool = False) -> None:
        """The bank has accepted and is working; the end comes after `seconds` of its clock."""
        self._next(f"{'pending_then_declined' if then_decline else 'pending'}:{seconds:g}", times)

    def unavailable(self, times: int = 1, *, retry_after: float = 1.0) -> None:
        """503, nothing done."""
        self._next(f"503:{retry_after:g}", times)

    def throttle(self, times: int = 1, *, retry_after: float = 1.0) -> None:
        """429, nothing done."""
        self._next(f"429:{retry_after:g}", times)

    def unauthorized(self, times: int = 1) -> None:
        """401, nothing done."""
        self._next("401", times)

    def cached_500(self, times: int = 1) -> None:
        """The bank makes the payment and answers 500; a replay gets that 500 again, as long as the key is kept."""
        self._next("act_then_500", times)

    def slow(self, seconds: float, times: int = 1) -> None:
        """The bank makes the payment and answers only after so many real seconds."""
        self._next(f"act_then_stall:{seconds:g}", times)

    def garble(self, times: int = 1) -> None:
        """The bank makes the payment, and half of its answer comes."""
        self._next("broken_body", times)

    def look_fails(self, times: int = 1) -> None:
        """The next questions are answered 503; they do not say what was done."""
        self.script(lookups, ["503"] * times)

    @property
    def payments(self) -> list[Payment]:
        """What the bank has made until now, declined payments too; `details` is the body of the order."""
        return self.log.payments()

    @property
    def charges(self) -> list[Payment]:
        """The payments that moved money, or will."""
        return self.log.effects()

    @property
    def requests(self) -> Sequence[Request]:
        """Everything that the bank was asked, look-ups too, each with its fault and its end."""
        return self.log.requests

    def _next(self, fault: str, times: int) -> None:
        step: dict[str, Any] = {"fault": fault}
        self.script(writes, [step] * times)
