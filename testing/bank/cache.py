"""The idempotency keys: what a request with a key does, according to the account's replay behaviour."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from idem.testing.bank.clock import Clock
from idem.testing.bank.records import Remembered, Voided
from idem.testing.bank.settings import BankAccount, SecondRequest


class CacheDecision(Enum):
    """How to handle a request with a key that gets no stored answer."""

    EXECUTE = auto()
    IN_FLIGHT = auto()
    MISMATCH = auto()
    CANCELED = auto()


class KeyCache:
    """Keys that were executed (read from the log at the start) and keys in flight (in memory: a bank that dies has
    nothing in flight). It remembers only executed keys: a 429, a 401 or a 400 came before execution."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._executed: dict[tuple[str, str], Remembered] = {}
        self._in_flight: dict[tuple[str, str], str] = {}
        self._blocked_keys: set[tuple[str, str]] = set()

    def remember(self, remembered: Remembered) -> None:
        """Store that the key was executed."""
        self._executed[remembered.account, remembered.key] = remembered

    def cancel(self, voided: Voided) -> None:
        """Store that the key was cancelled; if the cancel blocks late requests, those with the key are refused."""
        if voided.blocks_late_requests:
            self._blocked_keys.add((voided.account, voided.key))

    @contextmanager
    def decided(self, account: BankAccount, key: str, fingerprint: str) -> Iterator[CacheDecision | Remembered]:
        """The answer of a replay, or the decision. A key to execute is in flight inside the block."""
        decision = self._decide(account, key, fingerprint)
        if decision is not CacheDecision.EXECUTE:
            yield decision
            return
        self._in_flight[account.name, key] = fingerprint
        try:
            yield decision
        finally:
            self._in_flight.pop((account.name, key), None)

    def _decide(self, account: BankAccount, key: str, fingerprint: str) -> CacheDecision | Remembered:
        place = (account.name, key)
        if self.canceled(account, key):
            return CacheDecision.CANCELED
        known = self._executed.get(place)
        if known is not None and not self._counts(account, known):
            known = None
        if (known.fingerprint if known else self._in_flight.get(place, fingerprint)) != fingerprint:
            return CacheDecision.MISMATCH
        if place in self._in_flight:
            return CacheDecision.IN_FLIGHT
        if known is not None:
            if account.replay is SecondRequest.CURRENT and known.appears > self._clock.now():
                return CacheDecision.IN_FLIGHT
            return known
        return CacheDecision.EXECUTE

    def canceled(self, account: BankAccount, key: str) -> bool:
        """Whether a cancel blocks the key; that may have happened while its request was in flight."""
        return (account.name, key) in self._blocked_keys

    def _counts(self, account: BankAccount, known: Remembered) -> bool:
        if account.retention is not None and self._clock.now() >= known.at + account.retention:
            return False
        match account.replay:
            case SecondRequest.SUCCESS_ONLY:
                return 200 <= known.status < 300
            case SecondRequest.CURRENT:
                # If nothing was made, there is nothing to show.
                return known.payment is not None
            case _:
                return True
