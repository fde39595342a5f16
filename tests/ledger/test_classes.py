"""The classes of a ledger check, each made as it happens: by a lost answer, a person, a program beside idem."""

from typing import Any
from uuid import UUID

import httpx
import pytest
from fix_desk import Desk
from fix_spine import Spine
from ledger.books import counts, entries, keyed, listed, listing, post, provider_key, walk

from idem.outbox.values import json_pointer
from idem.outcomes import Succeeded


@pytest.fixture(autouse=True)
def bank_that_is_listed(spine: Spine) -> None:
    listed(spine)


async def cancelled(spine: Spine, intent: UUID) -> None:
    """At the bank, by its key."""
    async with httpx.AsyncClient(
        base_url=spine.bank.url, headers={"authorization": "Bearer keyed-token"}, verify=False
    ) as client:
        answer = await client.post("/payments/cancel", json={"key": await provider_key(spine, intent)})
        assert answer.status_code == 200, answer.text


async def state(spine: Spine, intent: UUID) -> tuple[str, str | None]:
    row = await spine.one("SELECT state, outcome FROM idem.intents WHERE id = %(i)s", i=intent)
    return row["state"], row["outcome"]


async def test_what_both_sides_say_is_matched(spine: Spine) -> None:
    await spine.sent()
    await spine.sent("k2", faults=["decline"])
    checked = await walk(spine)
    assert checked.clean
    assert {lane.provider: lane.walked for lane in checked.lanes} == {"keyed": "complete", "keyless": "not_listed"}
    assert counts(checked.lanes[0]) == {"matched": 2}
    assert await entries(spine) == []


async def test_an_unknown_row_is_settled_by_what_the_list_shows(spine: Spine) -> None:
    intent = await spine.sent(faults=["act_then_drop"])
    assert await state(spine, intent) == ("unknown", None)
    assert counts(await keyed(spine)) == {"settled_now": 1}
    assert await state(spine, intent) == ("completed", "succeeded")
    assert ("reconciler", "ledger_check", "succeeded") in await spine.evidence(intent)
    assert counts(await keyed(spine)) == {"matched": 1}


async def test_a_live_claim_is_left_alone(desk: Desk, spine: Spine) -> None:
    """Its worker will report in a moment: what is in flight is no discrepancy (hazard 40)."""
    intent = await desk.live("k1")
    await post(spine, key=await provider_key(spine, intent), amount=100)
    assert counts(await keyed(spine)) == {"open": 1}
    assert await desk.state(intent) == ("in_progress", "claimed")


async def test_hazard_17_a_payment_that_a_person_said_had_not_happened(desk: Desk, spine: Spine) -> None:
    """The row is at rest, so the proof is applied late: whoever was told otherwise hears of it."""
    intent = await spine.sent(faults=["act_then_drop"])
    await spine.advance(300)
    await desk.act("resolve_failed", intent)
    assert await desk.state(intent) == ("failed_retryable", "held")
    report = await keyed(spine)
    assert counts(report) == {"settled_now": 1}
    assert report.settled[0]["was"] == "failed_retryable"
    assert await state(spine, intent) == ("completed", "succeeded")
    assert (await spine.events(intent))[-1] == "corrected"


async def test_hazard_17_a_payment_of_an_intent_that_was_cancelled(desk: Desk, spine: Spine) -> None:
    """The answer stays; one dead letter, the evidence and one `corrected` say that money has moved."""
    intent = await spine.sent(faults=["act_then_drop"])
    await spine.advance(300)
    await desk.act("resolve_failed", intent)
    await desk.act("cancel", intent, know_it_did_not_happen=True)
    for _ in range(2):
        assert counts(await keyed(spine)) == {"theirs_only": 1}
    assert await state(spine, intent) == ("completed", "cancelled")
    (entry,) = await entries(spine)
    assert entry["intent_id"] == intent
    details = entry["details"]
    assert details["class"] == "theirs_only"
    assert details["differs"][0] == {"what": "outcome", "here": "cancelled", "there": "succeeded"}
    assert (details["there"]["fields"], details["here"]["intent"]) == ({"amount": 100}, str(intent))
    assert details["next"]
    assert [kind for _, kind, _ in await spine.evidence(intent)].count("ledger_check") == 1
    assert (await spine.events(intent)).count("corrected") == 1


async def test_ours_only_is_confirmed_by_a_question(desk: Desk, spine: Spine) -> None:
    """A person completed it with a reference that the bank has never had."""
    intent = await spine.sent(faults=["drop_before_acting"])
    await desk.act("resolve_completed", intent, outcome=Succeeded("pay_nowhere", "succeeded", {"amount": 100}))
    assert counts(await keyed(spine)) == {"ours_only": 1}
    (entry,) = await entries(spine)
    assert entry["intent_id"] == intent
    assert (entry["details"]["reference"], entry["details"]["there"]) == ("pay_nowhere", None)
    assert spine.bank.log.requests[-1].path.startswith("/payments/pay_nowhere")


async def test_what_is_there_but_not_on_the_list_is_asked_about(spine: Spine) -> None:
    """The bank's clock is ahead, so it says that the payment was made after the window."""
    spine.bank.shift_clock(7200)
    await spine.sent()
    report = await keyed(spine)
    assert (report.objects, counts(report)) == (0, {"matched": 1})
    assert spine.bank.log.requests[-1].path.startswith("/payments/pay_")


async def test_theirs_only_without_an_intent_is_ours_by_the_tag(spine: Spine) -> None:
    """As after a restore that lost the commit of the accept (hazards 5, 60)."""
    payment = await post(spine, metadata={"idem_deployment": "test"})
    foreign = await post(spine, metadata={"idem_deployment": "staging"})
    await post(spine)
    for _ in range(2):
        assert counts(await keyed(spine)) == {"theirs_only": 1, "foreign": 2}
    (entry,) = await entries(spine)
    assert entry["intent_id"] is None
    assert entry["subject"] == f"theirs_only keyed/keyed {payment}"
    assert entry["details"]["here"] is None
    assert entry["details"]["there"]["fields"] == {"amount": 77}
    assert entry["details"]["ours_by"] == "it carries this deployment's tag"
    assert foreign not in str(entry)


async def test_hazard_40_without_a_tag_only_an_account_of_our_own_shows_theirs(spine: Spine) -> None:
    listed(spine, tag=None)
    await post(spine)
    assert counts(await keyed(spine)) == {"foreign": 1}
    assert await entries(spine) == []
    listed(spine, tag=None, dedicated_account=True)
    assert counts(await keyed(spine)) == {"theirs_only": 1}
    assert [entry["details"]["ours_by"] for entry in await entries(spine)] == ["only this deployment uses the account"]


async def test_hazard_75_a_second_object_under_one_key_is_seen(spine: Spine) -> None:
    """What no outbox can prevent with a provider that knows no keys: two payments of one intent."""
    intent = await spine.sent()
    spine.change("keyed", ledger=listing(100, key=json_pointer.parse("/reference")))
    second = await post(spine, reference=await provider_key(spine, intent), amount=100)
    assert counts(await keyed(spine)) == {"matched": 1, "theirs_only": 1}
    (entry,) = await entries(spine)
    assert (entry["intent_id"], entry["details"]["differs"][0]["what"]) == (intent, "reference")
    assert entry["details"]["there"]["reference"] == second


async def test_each_further_object_of_an_intent_has_an_entry_of_its_own(spine: Spine) -> None:
    """An intent has one open entry of a reason; the next one names it."""
    intent = await spine.sent()
    spine.change("keyed", ledger=listing(100, key=json_pointer.parse("/reference")))
    key = await provider_key(spine, intent)
    second, third = await post(spine, reference=key), await post(spine, reference=key)
    for _ in range(2):
        assert counts(await keyed(spine)) == {"matched": 1, "theirs_only": 2}
    found = {entry["details"]["reference"]: entry for entry in await entries(spine)}
    assert set(found) == {second, third}
    assert {entry["intent_id"] for entry in found.values()} == {intent, None}
    assert {entry["details"]["here"]["intent"] for entry in found.values()} == {str(intent)}


@pytest.mark.parametrize("resolution", [None, "closed"])
async def test_a_conflict_that_is_known_already_is_not_opened_twice(spine: Spine, resolution: str | None) -> None:
    """A webhook or a look-up has brought the same contradiction before: that entry is the one."""
    intent = await spine.sent()
    spine.change("keyed", ledger=listing(100, key=json_pointer.parse("/reference")))
    second = await post(spine, reference=await provider_key(spine, intent))
    await spine.all(
        "INSERT INTO idem.dead_letters (intent_id, reason, details, resolved_at, resolution, resolved_by)"
        " VALUES (%(i)s, 'possible_duplicate',"
        " jsonb_build_object('second', jsonb_build_object('reference', %(s)s::text)),"
        " CASE WHEN %(r)s::text IS NOT NULL THEN now() END, %(r)s, CASE WHEN %(r)s::text IS NOT NULL THEN 'ada' END)"
        " RETURNING id",
        i=intent, s=second, r=resolution,
    )  # fmt: skip
    assert counts(await keyed(spine)) == {"matched": 1, "decided" if resolution else "theirs_only": 1}
    assert await entries(spine) == []


async def test_a_refusal_under_a_key_that_was_cancelled_settles_nothing(spine: Spine) -> None:
    """`cancel_by_key` has voided it, and the list tells of that: the client was not refused."""
    intent = await spine.sent(faults=["act_then_drop"])
    await cancelled(spine, intent)
    await spine.forced("UPDATE idem.outbox SET key_burned = true, cancel_sent = true WHERE intent_id = %(i)s", i=intent)
    assert counts(await keyed(spine)) == {"open": 1}
    assert await state(spine, intent) == ("unknown", None)
    await spine.forced("UPDATE idem.outbox SET cancel_sent = false WHERE intent_id = %(i)s", i=intent)
    assert counts(await keyed(spine)) == {"settled_now": 1}
    assert await state(spine, intent) == ("completed", "refused")


async def test_a_reference_that_several_calls_share_is_known(spine: Spine) -> None:
    await spine.sent()
    await spine.sent("k2")
    spine.change("keyed", ledger=listing(100, key=None))
    await spine.forced(
        "UPDATE idem.intents SET provider_reference = (SELECT min(provider_reference) FROM idem.intents)"
    )
    assert counts(await keyed(spine))["matched"] == 1
    assert await entries(spine) == []


async def test_a_payment_that_was_called_off_after_it_succeeded_differs(spine: Spine) -> None:
    """A refusal there against a success here is a discrepancy; a refund or a dispute would have been a later fact."""
    await cancelled(spine, await spine.sent())
    assert counts(await keyed(spine)) == {"theirs_only": 1}
    (entry,) = await entries(spine)
    assert entry["details"]["differs"] == [{"what": "outcome", "here": "succeeded", "there": "refused"}]


@pytest.mark.parametrize(("here", "kind"), [(100, "matched"), (100.0, "matched"), (99, "theirs_only")])
async def test_the_amounts_of_both_sides_are_compared(spine: Spine, here: Any, kind: str) -> None:
    intent = await spine.sent()
    sql = "UPDATE idem.intents SET result = jsonb_build_object('amount', %(a)s::numeric) WHERE id = %(i)s"
    await spine.forced(sql, a=here, i=intent)
    assert counts(await keyed(spine)) == {kind: 1}
    expected = [] if kind == "matched" else [{"what": "amount", "here": 99, "there": 100}]
    assert [each for entry in await entries(spine) for each in entry["details"]["differs"]] == expected


async def test_a_discrepancy_that_somebody_has_decided_is_not_opened_again(desk: Desk, spine: Spine) -> None:
    await post(spine, metadata={"idem_deployment": "test"})
    await keyed(spine)
    (entry,) = await entries(spine)
    await desk.cli("dlq", "show", entry["id"], out=("next: find out who made it", "discard"))
    listing_ = await desk.cli("dlq", "list", "--provider", "keyed", "--json")
    assert [each["id"] for each in listing_.data["dead_letters"]] == [str(entry["id"])]
    await desk.cli("dlq", "discard", entry["id"], "--reason", "paid by hand, ticket 7", "--yes", code=0)
    checked = await walk(spine)
    assert checked.clean
    assert counts(checked.lanes[0]) == {"decided": 1}
    assert len(await entries(spine)) == 1


async def test_a_clean_check_closes_nothing(spine: Spine) -> None:
    await post(spine, metadata={"idem_deployment": "test"})
    await keyed(spine)
    listed(spine, horizon=7200)
    assert (await walk(spine)).clean
    (entry,) = await entries(spine)
    assert entry["resolved_at"] is None


async def test_a_dry_run_writes_nothing(spine: Spine) -> None:
    intent = await spine.sent(faults=["act_then_drop"])
    await post(spine, metadata={"idem_deployment": "test"})
    before = await spine.all("SELECT count(*) AS n FROM idem.evidence")
    assert counts(await keyed(spine, dry_run=True)) == {"settled_now": 1, "theirs_only": 1}
    assert await state(spine, intent) == ("unknown", None)
    assert await entries(spine) == []
    assert await spine.all("SELECT count(*) AS n FROM idem.evidence") == before
