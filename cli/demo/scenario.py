"""The plan of a demo: every payment with its client's behaviour and the bank's faults, all from the seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from idem.cli.demo.constants import Constants
from idem.cli.demo.settings import DemoSettings, Sabotage

TENANT = "shop"
KEYED, KEYLESS = "bank", "oldbank"
"""The two providers, one bank: the one account stores answers under our key, the other ignores keys."""

DEPTH = 8
"""How many sends of one payment have planned faults; later ones succeed, so that a demo ends."""

FAULTS: Mapping[str, float] = {
    "act_then_drop": 3.0,
    "act_then_reset": 2.0,
    "act_then_stall": 2.0,
    "act_then_500": 2.0,
    "drop_before_acting": 2.0,
    "reset_before_acting": 1.0,
    "stall_before_acting": 2.0,
    "429": 1.0,
    "503": 1.0,
    "500_before_acting": 1.0,
    "drip": 1.0,
    "broken_body": 1.5,
    "cut_body": 1.0,
    "decline": 1.5,
    "pending": 1.5,
    "html_403": 0.5,
}
"""The faults, by weight. Late effects stay inside the flight limit: the bank keeps its contract."""


class Manner(StrEnum):
    """How a client behaves, as real ones do."""

    PATIENT = "patient"
    EARLY = "early"
    """Retries immediately and often."""
    TWICE = "twice"
    """Sends its first request several times at the same moment."""
    OTHER_BODY = "other_body"
    """Sends another body under its key once, and must be refused."""
    ROLLBACK = "rollback"
    """Its first transaction is rolled back after accept: that intent must never have existed."""
    ABANDONED = "abandoned"
    """Its only transaction is rolled back, and it never retries: nothing may happen at the bank."""
    LEAVES = "leaves"
    """Never asks again after its request: the payment must complete all the same."""


MANNERS: Mapping[Manner, float] = {
    Manner.PATIENT: 50,
    Manner.EARLY: 15,
    Manner.TWICE: 12,
    Manner.OTHER_BODY: 8,
    Manner.ROLLBACK: 6,
    Manner.ABANDONED: 3,
    Manner.LEAVES: 6,
}


@dataclass(frozen=True, slots=True)
class PlannedPayment:
    """One payment. `rejected`: the bank rejects the request on purpose, so that an operator must decide."""

    key: str
    operation: str
    params: Mapping[str, Any]
    manner: Manner
    at: float
    rejected: bool = False


def operation(provider: str) -> str:
    """The operation that pays through a provider."""
    return f"payments.{provider}"


def plan(settings: DemoSettings, times: Constants) -> list[PlannedPayment]:
    """All payments in the order in which they come in. The same seed gives the same plan."""
    chance = random.Random(f"idem demo {settings.seed}")
    payments = []
    moments = sorted(chance.random() * settings.arrival for _ in range(settings.payments))
    for number, at in enumerate(moments, 1):
        provider = (KEYED, KEYLESS)[number % 2]
        manner = chance.choices([*MANNERS], [*MANNERS.values()])[0]
        faults = _faults(chance, settings.faults, times)
        if settings.sabotage is not None and number % 8 in (1, 5) and number <= settings.payments // 2:
            # Victims for the sabotage: payments through the old bank whose answer is lost, or which act late.
            faults[:2] = [_timed("stall_before_acting", times) if number % 16 == 1 else "act_then_drop", "none"]
            manner = Manner.PATIENT
        params: dict[str, Any] = {"amount": chance.randrange(100, 100_000), "order": f"order-{number}"}
        rejected = settings.payments >= 10 and number in (3, 4)
        if rejected:
            # The bank rejects the amount 0. The payment must end held, with a dead letter.
            params["amount"], manner, faults = 0, Manner.PATIENT, ["none"]
        while faults and faults[-1] == "none":
            faults.pop()
        if faults:
            params["faults"] = faults
        key = f"demo-{settings.seed}-{number:05}"
        payments.append(PlannedPayment(key, operation(provider), params, manner, at, rejected))
    return payments


def wanted(payments: Sequence[PlannedPayment]) -> int:
    """How many payments must be made: all but the abandoned ones."""
    return sum(payment.manner is not Manner.ABANDONED for payment in payments)


def _faults(chance: random.Random, rate: float, times: Constants) -> list[str]:
    return [
        _timed(chance.choices([*FAULTS], [*FAULTS.values()])[0], times) if chance.random() < rate else "none"
        for _ in range(DEPTH)
    ]


TIMED: Mapping[str, str] = {"stall_before_acting": "bank.late_effect", "pending": "bank.pending", "drip": "bank.drip"}
"""The faults whose duration is a time of the contract."""


def _timed(fault: str, times: Constants) -> str:
    return f"{fault}:{times[TIMED[fault]]:g}" if fault in TIMED else fault


OF_OLD_BANK = "an unknown payment through the bank without keys, which the bank has made or will make"
NEEDS: Mapping[Sabotage, str] = {
    Sabotage.BLIND_RESEND: OF_OLD_BANK,
    Sabotage.BELIEVE_ABSENT: OF_OLD_BANK,
    Sabotage.LOSE_ROW: "an open payment without a claim",
    Sabotage.REWRITE_ANSWER: "a completed payment whose answer a client has seen",
    Sabotage.SKIP_EVIDENCE: "a completed payment",
}
"""The victim that each sabotage needs, for the message when it finds none."""
