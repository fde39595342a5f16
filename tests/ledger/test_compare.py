"""What one object means beside what the ledger says: every pair of ends, without a database."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outcomes import Proof
from idem.outbox.domain.provider import Item
from idem.outbox.domain.states import KeyState, OutboxStatus
from idem.outcomes import Pending, Refused, Succeeded
from idem.reconciler.ledger.compare import LedgerCall, read, same_object

ROW = UUID(int=2)
DONE = LedgerCall(UUID(int=1), ROW, "pay", KeyState.COMPLETED, "succeeded", "pay_1", result={"amount": 100})
REST = LedgerCall(UUID(int=1), ROW, "pay", KeyState.FAILED_RETRYABLE, status=OutboxStatus.HELD)
LEFT = replace(REST, status=None)
UNKNOWN = replace(REST, state=KeyState.UNKNOWN, status=OutboxStatus.UNKNOWN)
CONTRACT = Contract("bank")
S, R, P, I = Succeeded("pay_1"), Refused("pay_1"), Pending("pay_1"), Succeeded("pay_1", interim=True)  # noqa: E741


def item(said: Proof | None, reference: str | None = "pay_1", **more: Any) -> Item:
    return Item(reference, "key", said, "some_status", **more)


@pytest.mark.parametrize(
    ("ours", "said", "kind"),
    [
        (DONE, S, "matched"), (DONE, None, "matched"), (DONE, P, "matched"), (DONE, I, "matched"),
        (DONE, R, "theirs_only"),
        (replace(DONE, object_end="open"), R, "settled_now"), (replace(DONE, object_end="open"), S, "settled_now"),
        (replace(DONE, object_end="refused"), R, "matched"), (replace(DONE, object_end="refused"), S, "settled_now"),
        (replace(DONE, object_end="succeeded"), S, "matched"),
        (replace(DONE, object_end="succeeded"), R, "theirs_only"),
        (replace(DONE, outcome="refused"), R, "matched"), (replace(DONE, outcome="refused"), None, "matched"),
        (replace(DONE, outcome="refused"), S, "theirs_only"), (replace(DONE, outcome="refused"), P, "theirs_only"),
        (replace(DONE, outcome="cancelled", reference=None), R, "matched"),
        (replace(DONE, outcome="cancelled", reference=None), None, "theirs_only"),
        (replace(DONE, outcome="cancelled", reference=None), I, "theirs_only"),
        (REST, S, "settled_now"), (REST, P, "settled_now"), (REST, R, "settled_now"), (REST, None, "theirs_only"),
        (LEFT, S, "theirs_only"), (LEFT, P, "theirs_only"), (LEFT, R, "matched"), (LEFT, None, "theirs_only"),
        (UNKNOWN, S, "settled_now"), (UNKNOWN, P, "settled_now"), (UNKNOWN, None, "open"),
        (replace(UNKNOWN, status=OutboxStatus.AWAITING), P, "open"),
        (replace(UNKNOWN, status=OutboxStatus.AWAITING), I, "open"),
        (replace(UNKNOWN, status=OutboxStatus.AWAITING), S, "settled_now"),
        (replace(UNKNOWN, status=OutboxStatus.CLAIMED, live=True), S, "open"),
        (replace(UNKNOWN, status=OutboxStatus.PENDING, state=KeyState.IN_PROGRESS), S, "settled_now"),
    ],
)  # fmt: skip
def test_one_object(ours: LedgerCall, said: Proof | None, kind: str) -> None:
    assert read(item(said), ours, CONTRACT).kind == kind


@pytest.mark.parametrize(
    ("said", "kind"), [(S, "theirs_only"), (P, "theirs_only"), (None, "theirs_only"), (R, "matched")]
)
def test_another_object_of_the_same_call_counts_if_it_may_have_moved_something(said: Proof | None, kind: str) -> None:
    reading = read(item(said, "pay_2"), DONE, CONTRACT)
    assert reading.kind == kind
    assert [each.what for each in reading.differs] == (["reference"] if kind == "theirs_only" else [])


def test_a_refusal_under_a_key_that_we_have_cancelled_is_no_news() -> None:
    assert read(item(R), REST, CONTRACT, void=True).kind == "matched"
    assert read(item(R), UNKNOWN, CONTRACT, void=True).kind == "open"
    assert read(item(R), DONE, CONTRACT, void=True).kind == "matched"
    assert read(item(S), REST, CONTRACT, void=True).kind == "settled_now", "money has moved all the same"


def test_another_kind_of_object_of_the_same_call_is_no_second_effect() -> None:
    """A payment and its charge carry one key."""
    charge, payment = item(S, "ch_1", kind="charge"), item(S, "pay_1", kind="payment")
    assert read(charge, DONE, CONTRACT, wanted="payment").kind == "matched"
    assert read(charge, replace(DONE, outcome="refused"), CONTRACT, wanted="payment").kind == "matched"
    assert read(charge, DONE, CONTRACT).kind == "theirs_only"
    assert not same_object(DONE, replace(charge, reference="pay_1"), "payment")
    assert same_object(DONE, payment, "payment")
    assert same_object(DONE, replace(payment, kind=None), None)


@pytest.mark.parametrize(
    ("tagged", "dedicated", "kind"),
    [
        (True, False, "theirs_only"), (False, False, "foreign"), (None, False, "foreign"),
        (None, True, "theirs_only"), (False, True, "theirs_only"),
    ],
)  # fmt: skip
def test_what_nothing_here_has(tagged: bool | None, dedicated: bool, kind: str) -> None:
    assert read(item(S, ours=tagged), None, replace(CONTRACT, dedicated_account=dedicated)).kind == kind


@pytest.mark.parametrize(
    ("here", "there", "what"),
    [
        ({"amount": 100}, {"amount": 101}, ["amount"]), ({"amount": 100}, {"amount": 100.0}, []),
        ({"amount": 1}, {"amount": True}, ["amount"]), ({"amount": "100"}, {"amount": 100}, ["amount"]),
        ({"amount": 100}, {"fee": 3}, []), ({"note": None}, {"note": "late"}, []),
        ({"next_action": {"url": "a"}}, {"next_action": {"url": "b"}}, []),
        ({"amount": 1, "currency": "eur"}, {"amount": 2, "currency": "usd"}, ["amount", "currency"]),
    ],
)  # fmt: skip
def test_named_values_of_both_sides(here: dict[str, Any], there: dict[str, Any], what: list[str]) -> None:
    reading = read(item(Succeeded("pay_1", fields=there)), replace(DONE, result=here), CONTRACT)
    assert [each.what for each in reading.differs] == what
    assert reading.kind == ("theirs_only" if what else "matched")
