"""What a test of an application reads of a flow: the ends of its steps, with their attempts counted apart."""

from typing import Any

from idem.testing import checked_ledger


async def test_steps_are_read_with_their_own_attempts(flows: Any) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["act_then_drop"])
    await flows.spine.reconcile(after=10)
    await flows.work(faults=["decline"])
    await flows.work(times=2)
    found = checked_ledger.steps(flows.spine.url, intent)
    assert [(step.number, step.name, step.outcome, step.undoes) for step in found] == [
        (1, "charge", "succeeded", None),
        (2, "ship", "succeeded", None),
        (3, "receipt", "refused", None),
        (4, "unship", "succeeded", 2),
        (5, "refund", "succeeded", 1),
    ]
    assert [step.reference for step in found] == [payment.id for payment in flows.spine.bank.log.payments()]
    (read,) = checked_ledger.intents(flows.spine.url)
    assert read.attempts == sum(step.attempts for step in found) >= 5
    assert checked_ledger.steps(flows.spine.url, flows.accepted("k2")) == []
