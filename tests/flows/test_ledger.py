"""The ledger check and the questions about known objects go by the step: each is a call of its account."""

from typing import Any

import pytest
from flows.order import Flows, step
from ledger.books import HOUR, counts, entries, keyed, listed

from idem.outbox.calls import known_object
from idem.reconciler.ledger.report import LaneReport


async def checked(flows: Flows, **options: Any) -> LaneReport:
    """A check that begins after everything here has ended."""
    return await keyed(flows.spine, HOUR, **options)


@pytest.fixture
def flows(flows: Flows) -> Flows:
    listed(flows.spine)
    return flows


async def test_each_step_is_matched_with_its_own_object(flows: Flows) -> None:
    flows.accepted()
    await flows.work(times=4)
    assert flows.effects() == ["charge", "ship", "receipt"]
    report = await checked(flows)
    assert (report.objects, counts(report)) == (3, {"matched": 3})


async def test_a_compensated_flow_is_matched_too(flows: Flows) -> None:
    """The refused shipment, the charge, and the refund."""
    flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.work(times=2)
    assert flows.effects() == ["charge", "refund"]
    report = await checked(flows)
    assert (report.objects, counts(report)) == (3, {"matched": 3})


async def test_an_open_step_is_settled_by_its_object_and_the_flow_goes_on(flows: Flows) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["act_then_drop"])
    report = await checked(flows)
    assert counts(report) == {"matched": 1, "settled_now": 1}
    assert [(each["step"], each["was"], each["became"]) for each in report.settled] == [("ship", "unknown", "applied")]
    await flows.work(times=2)
    assert flows.effects() == ["charge", "ship", "receipt"]
    await flows.spine.expect(intent, state="completed", letters=[])


async def test_a_done_step_that_the_provider_does_not_have_is_found_by_its_step(flows: Flows) -> None:
    """While a later step is open: the charge is gone at the bank."""
    intent = flows.accepted()
    await flows.work()
    await flows.spine.execute(
        "ALTER TABLE idem.steps DISABLE TRIGGER USER; UPDATE idem.steps SET provider_reference = 'pay_gone';"
        "ALTER TABLE idem.steps ENABLE TRIGGER USER; ALTER TABLE idem.requests DISABLE TRIGGER USER;"
        "UPDATE idem.requests SET provider_key = gen_random_uuid(); ALTER TABLE idem.requests ENABLE TRIGGER USER"
    )
    row = await flows.spine.row(intent)
    report = await checked(flows)
    assert counts(report) == {"ours_only": 1, "foreign": 1}
    (ours,) = await entries(flows.spine)
    assert (ours["intent_id"], ours["details"]["here"]["step"]) == (intent, "charge")
    assert await flows.spine.row(intent) == row


async def test_the_providers_contradiction_of_a_done_step_is_told_with_its_name(flows: Flows) -> None:
    intent = flows.accepted()
    await flows.work()
    await flows.spine.execute("ALTER TABLE idem.steps DISABLE TRIGGER USER; UPDATE idem.steps SET outcome = 'refused'")
    report = await checked(flows)
    assert counts(report) == {"theirs_only": 1}
    (entry,) = await entries(flows.spine)
    assert entry["details"]["here"]["step"] == "charge"
    payload = await flows.spine.value("SELECT payload FROM idem.events WHERE type = 'corrected'")
    assert payload["step"] == "charge"
    assert counts(await checked(flows)) == {"theirs_only": 1}
    assert len(await entries(flows.spine)) == 1
    await flows.spine.expect(intent, state="in_progress")


async def test_a_partial_flow_is_no_discrepancy(flows: Flows) -> None:
    """The refusal of the shipment is on the list; an operator has to decide, and has one entry about it."""
    flows.define(step("charge"), step("ship", on_refusal="operator"))
    intent = flows.accepted()
    await flows.work()
    await flows.work(faults=["decline"])
    await flows.spine.expect(intent, state="failed_retryable", status="held", letters=["partial"])
    version = await flows.spine.value("SELECT version FROM idem.intents")
    for _ in range(2):
        report = await checked(flows)
        assert counts(report) == {"matched": 2}
    assert await flows.spine.value("SELECT version FROM idem.intents") == version


async def test_what_is_known_to_exist_includes_the_steps(flows: Flows) -> None:
    """The control question and the probe have something to ask about where all operations are flows."""
    intent = flows.accepted()
    await flows.work(times=1)
    reference = await flows.spine.value("SELECT provider_reference FROM idem.steps")
    found = await flows.spine.run(known_object.newest, "keyed", "keyed", -1.0)
    assert found is not None and found.reference == reference
    row = await flows.spine.row(intent)
    sender = await flows.spine.value("SELECT sent_as FROM idem.steps")
    assert sender is not None
    for name, expected in ((None, 0), ("charge", 1), ("ship", 0)):
        alike = await flows.spine.run(
            known_object.alike, "keyed", "keyed", -1.0, sender=sender >> known_object.BITS, intent=intent,
            row=row["id"], operation="order", step=name, later=True, limit=3,
        )  # fmt: skip
        assert len(alike) == expected
    assert await flows.spine.run(known_object.last_request, "keyed", "keyed", "order", "charge") is not None
    assert await flows.spine.run(known_object.last_request, "keyed", "keyed", "order", None) is None
