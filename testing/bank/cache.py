"""The idempotency keys: what a request with a key is to do, by the account's replay behaviour."""

from dataclasses import dataclass
from enum import Enum, auto

from idem.testing.bank.clock import Clock
from idem.testing.bank.records import Payment
from idem.testing.bank.settings import Account, Replay


class Decision(Enum):
    """What becomes of a request with a key."""

    EXECUTE = auto()
    REPLAY = auto()
    IN_FLIGHT = auto()
    MISMATCH = auto()


@dataclass(frozen=True)
class Decided:
    """The decision, with the payment that a replay answers for."""

    decision: Decision
    payment: Payment | None = None


class KeyCache:
    """Keys that were executed (read from the log at the start) and keys in flight (in memory: a bank that dies has
    nothing in flight). Only what was executed is remembered: a 429, a 401 or a 400 came before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._executed: dict[tuple[str, str], Payment] = {}
        self._in_flight: dict[tuple[str, str], str] = {}

    def remember(self, payment: Payment) -> None:
        """The payment was made under its key."""
        if payment.key is not None:
            self._executed[payment.account, payment.key] = payment

    def begin(self, account: Account, key: str, fingerprint: str) -> Decided:
        """Decide, and take the key in flight if it is to be executed; then `end` must follow."""
        place = (account.name, key)
        known = self._executed.get(place)
        if known is not None and not self._counts(account, known):
            known = None
        if (known.fingerprint if known else self._in_flight.get(place, fingerprint)) != fingerprint:
            return Decided(Decision.MISMATCH)
        if place in self._in_flight:
            return Decided(Decision.IN_FLIGHT)
        if known is not None:
            return Decided(Decision.REPLAY, known)
        self._in_flight[place] = fingerprint
        return Decided(Decision.EXECUTE)

    def end(self, account: Account, key: str) -> None:
        """The execution is over, whatever came of it."""
        self._in_flight.pop((account.name, key), None)

    def _counts(self, account: Account, payment: Payment) -> bool:
        if account.retention is not None and self._clock.now() >= payment.at + account.retention:
            return False
        return account.replay is not Replay.SUCCESS_ONLY or 200 <= payment.answer_status < 300
