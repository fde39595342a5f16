"""The plan of a demo: every payment with its client's behaviour and the bank's faults, all from the seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from idem.cli.demo.constants import Constants
from idem.cli.demo.settings import FLOW_SABOTAGES, DemoSettings, Sabotage

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
NEVER_ACTS = frozenset({"drop_before_acting", "reset_before_acting", "429", "503", "500_before_acting", "html_403"})
"""After these the bank has done nothing, so a planned refusal still comes with the next send."""

FORWARD, UNDOING = ("reserve", "charge", "receipt"), ("refund", "release")
"""The steps of a flow, and those that undo it."""
EARLY = 0.7
"""The first part of the payments, in which flows begin."""
REFUSED = 0.25
"""The share of flows whose second or third step the bank refuses on purpose, beside those that a fault declines."""


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
    """One payment. `rejected`: the bank rejects the request on purpose; `partial`: of a flow, the bank refuses what
    would undo it. In both an operator must decide.
    """

    key: str
    operation: str
    params: Mapping[str, Any]
    manner: Manner
    at: float
    rejected: bool = False
    partial: bool = False

    @property
    def needs_operator(self) -> bool:
        """Whether it ends with a dead letter on purpose, and without an answer."""
        return self.rejected or self.partial


def operation(provider: str) -> str:
    """The operation that pays through a provider."""
    return f"payments.{provider}"


def flow_operation(provider: str) -> str:
    """The operation of several calls, the first of them through a provider."""
    return f"orders.{provider}"


def plan(settings: DemoSettings, times: Constants) -> list[PlannedPayment]:
    """All payments in the order in which they come in. The same seed gives the same plan."""
    chance = random.Random(f"idem demo {settings.seed}")
    flows = PlannedFlows(settings, times)
    payments = []
    moments = sorted(chance.random() * settings.arrival for _ in range(settings.payments))
    for number, at in enumerate(moments, 1):
        provider = (KEYED, KEYLESS)[number % 2]
        manner = chance.choices([*MANNERS], [*MANNERS.values()])[0]
        faults = draw_faults(chance, settings.faults, times)
        is_victim = settings.sabotage is not None and number % 8 in (1, 5) and number <= settings.payments // 2
        if is_victim:
            # Victims for the sabotage: payments through the old bank whose answer is lost, or which act late.
            faults[:2] = [timed("stall_before_acting", times) if number % 16 == 1 else "act_then_drop", "none"]
            manner = Manner.PATIENT
        params: dict[str, Any] = {"amount": chance.randrange(100, 100_000), "order": f"order-{number}"}
        rejected = settings.payments >= 10 and number in (3, 4)
        if rejected:
            # The bank rejects the amount 0. The payment must end held, with a dead letter.
            params["amount"], manner, faults = 0, Manner.PATIENT, ["none"]
        key = f"demo-{settings.seed}-{number:05}"
        if flows.has(number) and not rejected and not is_victim:
            payments.append(flows.payment(key, provider, params, manner, at))
            continue
        if faults := without_tail(faults):
            params["faults"] = faults
        payments.append(PlannedPayment(key, operation(provider), params, manner, at, rejected))
    return payments


def wanted(payments: Sequence[PlannedPayment]) -> int:
    """How many payments must be made: all but the abandoned ones."""
    return sum(payment.manner is not Manner.ABANDONED for payment in payments)


class PlannedFlows:
    """Which payments are flows, and what the bank does to their steps. Drawn apart from the payments: without flows the
    plan is the same as if there were none.
    """

    def __init__(self, settings: DemoSettings, times: Constants) -> None:
        self._settings = settings
        self._times = times
        self._chance = random.Random(f"idem demo flows {settings.seed}")
        self._any = False

    def has(self, number: int) -> bool:
        """Whether this payment is a flow. Those that come last are none, if others suffice: a flow takes longer."""
        share, is_early = self._settings.flows, number <= EARLY * self._settings.payments
        return self._chance.random() < (share / EARLY if is_early else (share - EARLY) / (1 - EARLY))

    def payment(self, key: str, provider: str, params: Mapping[str, Any], manner: Manner, at: float) -> PlannedPayment:
        """A flow in place of a payment."""
        settings, chance = self._settings, self._chance
        faults = {step: draw_faults(chance, settings.faults, self._times) for step in (*FORWARD, *UNDOING)}
        for step in UNDOING:
            faults[step] = ["none" if fault == "decline" else fault for fault in faults[step]]
        # The first flow ends partly done: the bank refuses its receipt, and the refund too.
        partial = not self._any and settings.payments >= 10
        self._any = True
        refused = "receipt" if partial or settings.sabotage in FLOW_SABOTAGES else self._refused()
        if refused is not None:
            faults[refused] = [fault if fault in NEVER_ACTS else "decline" for fault in faults[refused]]
        if partial:
            manner, faults["refund"] = Manner.PATIENT, ["decline"] * DEPTH
            for step in ("reserve", "charge"):
                faults[step] = ["none" if fault == "decline" else fault for fault in faults[step]]
        elif settings.sabotage in FLOW_SABOTAGES:
            # The second step waits for a second before it is sent again.
            manner, faults["reserve"], faults["charge"] = Manner.PATIENT, [], ["429"]
        planned = {step: kept for step, each in faults.items() if (kept := without_tail(each))}
        return PlannedPayment(key, flow_operation(provider), {**params, "faults": planned}, manner, at, partial=partial)

    def _refused(self) -> str | None:
        if self._chance.random() >= REFUSED:
            return None
        return self._chance.choice(FORWARD[1:])


def without_tail(faults: Sequence[str]) -> list[str]:
    """Planned faults without those at the end that are none."""
    kept = list(faults)
    while kept and kept[-1] == "none":
        kept.pop()
    return kept


def draw_faults(chance: random.Random, rate: float, times: Constants) -> list[str]:
    """The faults of the sends of one call, in their order."""
    return [
        timed(chance.choices([*FAULTS], [*FAULTS.values()])[0], times) if chance.random() < rate else "none"
        for _ in range(DEPTH)
    ]


TIMED: Mapping[str, str] = {"stall_before_acting": "bank.late_effect", "pending": "bank.pending", "drip": "bank.drip"}
"""The faults whose duration is a time of the contract."""


def timed(fault: str, times: Constants) -> str:
    """A fault with its duration, if it has one."""
    return f"{fault}:{times[TIMED[fault]]:g}" if fault in TIMED else fault


OF_OLD_BANK = "an unknown payment through the bank without keys, which the bank has made or will make"
NEEDS: Mapping[Sabotage, str] = {
    Sabotage.BLIND_RESEND: OF_OLD_BANK,
    Sabotage.BELIEVE_ABSENT: OF_OLD_BANK,
    Sabotage.LOSE_ROW: "an open payment without a claim",
    Sabotage.REWRITE_ANSWER: "a completed payment whose answer a client has seen",
    Sabotage.SKIP_EVIDENCE: "a completed payment",
    Sabotage.REPEAT_STEP: "a flow whose second step is due",
    Sabotage.SHARE_KEY: "a flow whose second step is due",
    Sabotage.SKIP_UNDO: "a flow whose last step will be refused",
}
"""The victim that each sabotage needs, for the message when it finds none."""
