"""Cancels a payment by its key, for a client that does not know whether the payment exists."""

from idem.testing.bank.answers import BankAnswer, encoded, refusal
from idem.testing.bank.order import BankOrder
from idem.testing.bank.records import Payment, Voided
from idem.testing.bank.settings import BankAccount, SecondRequest
from idem.testing.bank.state import BankState


class Cancelling:
    """Voids payments by their key. The answer is the same whether there was a payment or not."""

    def __init__(self, state: BankState) -> None:
        self._state = state

    def remember(self, voided: Voided) -> None:
        """Restore one line of the log."""
        self._state.book.void(voided)
        self._state.cache.cancel(voided)

    async def serve(
        self, order: BankOrder, account: BankAccount, number: int
    ) -> tuple[BankAnswer, list[tuple[Payment, Voided]]]:
        """Handle request `number`; returns the answer and what was voided."""
        assert account.cancel is not None
        if account.replay is SecondRequest.NONE:
            return refusal(400, "unknown_parameter", "This account has no idempotency keys."), []
        if order.key is None:
            return refusal(400, "invalid_parameter", f"{account.cancel.member} must be the key of a payment."), []
        now, blocks = self._state.clock.now(), account.cancel.blocks_late_requests
        known = [each for each in self._state.book.under(account, order.key) if each.charged]
        # An effect that appears later by itself cannot be voided yet, unless the cancel blocks late requests.
        ended = [each for each in known if self._state.book.voided(each) is None and (blocks or each.at <= now)]
        ids: list[str | None] = [each.id for each in ended] or [None]
        lines = [Voided(number, now, account.name, order.key, id, blocks) for id in ids]
        self._state.ledger.write(*lines)
        await self._state.ledger.sync()
        for line in lines:
            self.remember(line)
        effect = "canceled" if ended else None
        answer = BankAnswer(200, encoded({}), {}, effect, ended[0].id if ended else None)
        return answer, list(zip(ended, lines, strict=False))
