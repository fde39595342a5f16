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
    """A bank that succeeds until a test says otherwise. Each method is about the next request that asks for an effect,
    or the next `times` of them; several calls are played in order. `script` and `when` can do more.

    A replay under the same key is a request too: the bank answers it from its memory, as the contract promises, and the
    fault affects only the connection or the answer, not the effect.
    """

    def __init__(self, settings: BankSettings | None = None) -> None:
        super().__init__(settings or BankSettings(durable=False, accounts=(BankAccount(shape=BankShape.own()),)))

    def act_then_drop(self, times: int = 1) -> None:
        """The bank makes the payment and closes the connection without an answer: the timeout after the charge."""
        self._next("act_then_drop", times)

    def drop_before_acting(self, times: int = 1) -> None:
        """The bank reads the request, does nothing and closes the connection; for the client it looks the same."""
        self._next("drop_before_acting", times)

    def decline(self, times: int = 1) -> None:
        """The bank decides against the payment: an answer, not an error."""
        self._next("decline", times)

    def refuse_request(self, times: int = 1) -> None:
        """The bank answers 422 in the provider's own error form and does nothing: the request itself is wrong."""
        self._next("422_before_acting", times)

    def require_action(self, seconds: float = 86400.0, times: int = 1) -> None:
        """The payment exists and waits for the customer; it succeeds after `seconds` of the bank's clock."""
        self._next(f"requires_action:{seconds:g}", times)

    def accept_and_work(self, seconds: float = 86400.0, times: int = 1, *, then_decline: bool = False) -> None:
        """The bank has accepted the payment and works on it; it ends after `seconds` of the bank's clock."""
        self._next(f"{'pending_then_declined' if then_decline else 'pending'}:{seconds:g}", times)

    def unavailable(self, times: int = 1, *, retry_after: float = 1.0) -> None:
        """The bank answers 503 and does nothing."""
        self._next(f"503:{retry_after:g}", times)

    def throttle(self, times: int = 1, *, retry_after: float = 1.0) -> None:
        """The bank answers 429 and does nothing."""
        self._next(f"429:{retry_after:g}", times)

    def unauthorized(self, times: int = 1) -> None:
        """The bank answers 401 and does nothing."""
        self._next("401", times)

    def cached_500(self, times: int = 1) -> None:
        """The bank makes the payment and answers 500; a replay gets that 500 again while the bank keeps the key."""
        self._next("act_then_500", times)

    def slow(self, seconds: float, times: int = 1) -> None:
        """The bank makes the payment and answers after `seconds` of real time."""
        self._next(f"act_then_stall:{seconds:g}", times)

    def garble(self, times: int = 1) -> None:
        """The bank makes the payment and sends half of its answer."""
        self._next("broken_body", times)

    def lookup_fails(self, times: int = 1) -> None:
        """The bank answers the next look-ups with 503; they do not show what was done."""
        self.script(lookups, ["503"] * times)

    @property
    def payments(self) -> list[Payment]:
        """All payments until now, including declined ones; `details` is the body of the order."""
        return self.log.payments()

    @property
    def charges(self) -> list[Payment]:
        """The payments that moved or will move money."""
        return self.log.effects()

    @property
    def requests(self) -> Sequence[Request]:
        """All requests to the bank, including look-ups, each with its fault and its end."""
        return self.log.requests

    def _next(self, fault: str, times: int) -> None:
        step: dict[str, Any] = {"fault": fault}
        self.script(writes, [step] * times)
