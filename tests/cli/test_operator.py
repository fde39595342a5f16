"""Each thing that an operator may do: where it is possible, and where it is refused with nothing changed."""

from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import pytest
from fix_desk import Desk

from idem import Answer
from idem.errors import ConfigError, OperatorRefused
from idem.outbox.operator import actions, dead_letters
from idem.outcomes import Refused, Succeeded

ACTIONS = ("cancel", "redrive", "resolve_failed", "resolve_completed")
LEGAL = {
    "pending": {"cancel", "resolve_completed"},
    "held": {"cancel", "redrive", "resolve_completed"},
    "unknown": {"redrive", "resolve_failed", "resolve_completed"},
    "awaiting": {"resolve_completed"},
    "live": set(),
    "completed": set(),
}
AFTERWARDS = {
    ("cancel", "pending"): ("completed", None),
    ("cancel", "held"): ("completed", None),
    ("redrive", "held"): ("in_progress", "pending"),
    ("redrive", "unknown"): ("in_progress", "pending"),
    ("resolve_failed", "unknown"): ("failed_retryable", "held"),
} | {("resolve_completed", status): ("completed", None) for status in ("pending", "held", "unknown", "awaiting")}


@pytest.mark.parametrize(("action", "status"), [(a, s) for a in ACTIONS for s in LEGAL if a in LEGAL[s]])
async def test_what_is_possible_is_done_with_a_name_and_a_reason(desk: Desk, action: str, status: str) -> None:
    intent = await getattr(desk, status)("k")
    done = await desk.act(action, intent, by="ada", reason="ticket 4711")
    assert await desk.state(intent) == AFTERWARDS[action, status]
    assert (done.state, done.status) == AFTERWARDS[action, status]
    evidence = await desk.spine.all(
        "SELECT * FROM idem.evidence WHERE intent_id = %(i)s AND source = 'operator' ORDER BY id", i=intent
    )
    assert evidence
    assert all((e["details"]["by"], e["details"]["reason"]) == ("ada", "ticket 4711") for e in evidence)
    assert "overridden" not in evidence[0]["details"]


@pytest.mark.parametrize(("action", "status"), [(a, s) for a in ACTIONS for s in LEGAL if a not in LEGAL[s]])
async def test_what_is_not_possible_is_refused_and_changes_nothing(desk: Desk, action: str, status: str) -> None:
    intent = await getattr(desk, status)("k")
    before = await everything(desk)
    with pytest.raises(OperatorRefused) as refused:
        await desk.act(action, intent)
    assert await everything(desk) == before
    if status == "live":
        assert "a call is in progress" in str(refused.value)
    if status == "completed":
        assert "never changes" in str(refused.value)


async def everything(desk: Desk) -> list[Any]:
    tables = ("intents", "idempotency_keys", "outbox", "evidence", "events", "dead_letters", "proofs")
    return [await desk.spine.all(f"SELECT * FROM idem.{table} ORDER BY 1, 2, 3") for table in tables]


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_version_that_moved_is_refused(desk: Desk, action: str) -> None:
    intent = await desk.held("k")
    await desk.refuses("changed after you read it", action, intent, version=await desk.version(intent) - 1)
    assert await desk.state(intent) == ("failed_retryable", "held")


REFUSED: list[tuple[str, tuple[str, ...], dict[str, Any], str]] = [
    ("held", ACTIONS, {"by": " "}, "say "),
    ("held", ACTIONS, {"reason": ""}, "say "),
    ("held with a proof", ("cancel", "redrive"), {}, "is not applied yet"),
    ("unknown with a proof", ("resolve_failed",), {"know_it_did_not_happen": True}, "is not applied yet"),
    ("unknown with a conflict", ("resolve_failed",), {}, r"proofs that disagree, .* say that the provider has it"),
    ("unknown with a possible_duplicate", ("resolve_failed",), {}, r"proofs that disagree, .* say that the provider"),
    ("unknown", ("resolve_completed",), {"outcome": Succeeded(None)}, "give the provider's reference"),
]
"""An intent, with a proof that nobody could apply yet or a dead letter; what is asked; the words of the refusal."""


@pytest.mark.parametrize(("there", "actions", "asked", "words"), REFUSED)
async def test_what_lacks_its_ground_is_refused_and_changes_nothing(
    desk: Desk, there: str, actions: tuple[str, ...], asked: dict[str, Any], words: str
) -> None:
    status, _, more = there.partition(" with a ")
    intent = await getattr(desk, status)("k")
    if more == "proof":
        await desk.store_proof(intent, Succeeded("pay_5"))
    elif more:
        await desk.bury(intent, more)
    before = await everything(desk)
    for action in actions:
        await desk.refuses(words, action, intent, **asked)
    assert await everything(desk) == before


async def test_an_unknown_id_is_said_to_be_unknown(desk: Desk) -> None:
    with pytest.raises(OperatorRefused, match="does not exist in this database"):
        await desk.spine.run(actions.cancel, desk.spine.catalogue, uuid4(), by="ada", reason="r")


async def test_a_cancelled_key_answers_cancelled_and_never_executes(desk: Desk) -> None:
    intent = await desk.held("k")
    await desk.act("cancel", intent)
    key = await desk.spine.key(intent)
    assert key["response_status"] == 409
    assert b'"code": "cancelled"' in bytes(key["response_body"])
    assert type(desk.spine.accept("k")).__name__ == "Replay"
    await desk.spine.work()
    await desk.spine.expect(intent, effects=0, letters=[])


async def test_a_redrive_is_sent_once_under_the_same_key_and_may_start_anew(desk: Desk) -> None:
    intent = await desk.held("k")
    await desk.spine.advance(2 * 86400)
    before = await desk.spine.row(intent)
    await desk.act("redrive", intent)
    after = await desk.spine.row(intent)
    assert before is not None and after is not None
    assert after["provider_key"] == before["provider_key"]
    assert after["start_before"] > before["start_before"]
    assert (after["redrives"], after["failures"], after["attempt"]) == (1, 0, 1)
    await desk.spine.work()
    await desk.spine.expect(intent, effects=1, state="completed", status=None)


async def test_a_redrive_answers_its_dead_letter_in_the_operators_name(desk: Desk) -> None:
    intent = await desk.held("k")
    await desk.act("redrive", intent, by="ada", reason="the address is corrected")
    row = await desk.spine.one("SELECT * FROM idem.dead_letters WHERE intent_id = %(i)s", i=intent)
    assert row["resolution"] == "redriven"
    assert row["resolved_by"].endswith(" / ada")
    assert row["note"] == "the address is corrected"


async def test_a_redrive_of_an_expired_key_is_refused(desk: Desk) -> None:
    intent = await desk.held("k")
    await desk.spine.all(
        "UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x' RETURNING id"
    )
    await desk.spine.all(
        "UPDATE idem.idempotency_keys SET state = 'expired', completed_at = now() WHERE intent_id = %(i)s RETURNING 1",
        i=intent,
    )
    await desk.refuses("key has expired", "redrive", intent)
    await desk.act("cancel", intent)
    assert await desk.state(intent) == ("completed", None)


async def test_a_redrive_of_an_operation_that_is_not_configured_is_a_mistake_in_the_configuration(desk: Desk) -> None:
    intent = await desk.held("k")
    object.__setattr__(desk.spine.catalogue, "operations", {})
    with pytest.raises(ConfigError, match="not configured here"):
        await desk.act("redrive", intent)


@pytest.mark.parametrize("action", ["resolve_failed", "redrive"])
async def test_it_did_not_happen_waits_for_the_quiet_time(desk: Desk, action: str) -> None:
    intent = await desk.unknown("k", quiet=False)
    await desk.refuses(r"may still act at the provider for .*i-know-it-did-not-happen", action, intent)
    await desk.act(action, intent, know_it_did_not_happen=True)
    evidence = await desk.spine.one(
        "SELECT details FROM idem.evidence WHERE intent_id = %(i)s AND kind = 'resolved_failed'", i=intent
    )
    assert "may still act" in evidence["details"]["overridden"][0]


async def test_it_did_not_happen_waits_while_the_reconciler_asks(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await take(desk, intent, lease=30)
    for action in ("resolve_failed", "redrive", "resolve_completed"):
        await desk.refuses("the reconciler is asking", action, intent)


async def test_a_take_that_ran_out_may_have_been_a_replay(desk: Desk) -> None:
    """Its holder never reported: a request of it may act as long as one of a lost claim (hazard 54)."""
    intent = await desk.unknown("k")
    await take(desk, intent, lease=-10)
    await desk.refuses("may still act", "resolve_failed", intent)
    await desk.act("resolve_failed", intent, know_it_did_not_happen=True)
    row = await desk.spine.one(
        "SELECT quiet_after > now() + interval '160 s' AS raised FROM idem.outbox WHERE intent_id = %(i)s", i=intent
    )
    assert row["raised"]


async def take(desk: Desk, intent: Any, *, lease: float) -> None:
    await desk.spine.all(
        "UPDATE idem.outbox SET claim_token = gen_random_uuid(), claimed_by = 'reconciler-1', claimed_at = now(),"
        " claimed_until = now() + make_interval(secs => %(s)s) WHERE intent_id = %(i)s RETURNING 1", i=intent, s=lease,
    )  # fmt: skip


async def test_a_failure_never_redrives_by_itself_but_its_client_may_come_again(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.act("resolve_failed", intent)
    await desk.spine.expect(intent, redrive_at=None)
    await desk.spine.reconcile()
    assert await desk.state(intent) == ("failed_retryable", "held")
    assert type(desk.spine.accept("k")).__name__ == "Retrying"


async def test_an_unknown_that_is_redriven_tells_nobody_that_it_rested(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.act("redrive", intent)
    kinds = [kind for source, kind, _ in await desk.spine.evidence(intent) if source == "operator"]
    assert kinds == ["resolved_failed", "redriven"]
    assert await desk.spine.all("SELECT * FROM idem.events WHERE aggregateid = %(i)s", i=intent) == []


async def test_completed_stores_what_the_operation_renders(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.act("resolve_completed", intent, outcome=Succeeded("pay_7", "succeeded"))
    key = await desk.spine.key(intent)
    assert key["response_status"] == 201
    assert b'"payment": "pay_7"' in bytes(key["response_body"])
    row = await desk.spine.one("SELECT outcome, provider_reference FROM idem.intents WHERE id = %(i)s", i=intent)
    assert (row["outcome"], row["provider_reference"]) == ("succeeded", "pay_7")


async def test_completed_as_refused_needs_no_reference(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.act("resolve_completed", intent, outcome=Refused(None))
    assert (await desk.spine.key(intent))["response_status"] == 402


async def test_an_answer_that_is_given_is_stored_byte_for_byte(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.act("resolve_completed", intent, answer=Answer(200, b'{ "by":"hand" }'))
    assert bytes((await desk.spine.key(intent))["response_body"]) == b'{ "by":"hand" }'


async def test_an_answer_that_cannot_be_rendered_must_be_given(desk: Desk) -> None:
    intent = await desk.unknown("k")
    known = desk.spine.catalogue.operations["pay.keyed"]
    object.__setattr__(known, "answer", lambda outcome, intent: 1 / 0)
    await desk.refuses(r"ZeroDivisionError.*--answer", "resolve_completed", intent)
    assert await desk.state(intent) == ("unknown", "unknown")


async def test_completed_against_a_stored_proof_that_disagrees_is_refused(desk: Desk) -> None:
    intent = await desk.unknown("k")
    await desk.store_proof(intent, Succeeded("pay_5"))
    await desk.refuses("pay_5", "resolve_completed", intent, outcome=Succeeded("pay_7"))
    await desk.act("resolve_completed", intent, outcome=Succeeded("pay_5"))
    await desk.spine.expect(intent, state="completed", status=None, letters=[])


async def test_a_late_proof_of_something_else_opens_a_conflict_and_leaves_the_operators_answer(desk: Desk) -> None:
    intent = await desk.unknown("k")
    row = await desk.spine.row(intent)
    await desk.act("resolve_completed", intent, outcome=Succeeded("pay_7"))
    before = (await desk.spine.key(intent))["response_body"]
    from idem.outbox.domain.outbox_row import StoredProof
    from idem.outbox.domain.transition import Evidence
    from idem.outbox.settle.proofs import apply

    assert row is not None
    terms = desk.spine.catalogue.require("pay.keyed")
    proof = StoredProof(uuid4(), "webhook", Succeeded("pay_8"), Answer(201, b"{}"))
    assert await desk.spine.run(apply, row["id"], proof, Evidence("webhook", "webhook"), terms) == "conflict"
    assert await desk.spine.letters(intent) == ["possible_duplicate"]
    assert (await desk.spine.key(intent))["response_body"] == before


async def test_the_letter_that_is_resolved_is_closed_even_where_a_proof_would_not_close_it(desk: Desk) -> None:
    intent, letter = await desk.buried("unknown", "conflict")
    await desk.act("resolve_completed", intent, letter=letter)
    assert await desk.spine.letters(intent) == []
    row = await desk.spine.one("SELECT * FROM idem.dead_letters WHERE id = %(l)s", l=letter)
    assert (row["resolution"], row["note"]) == ("resolved_completed", "ticket 7")


async def test_a_letter_about_another_intent_is_refused(desk: Desk) -> None:
    intent, other = await desk.unknown("k"), await desk.held("k2")
    await desk.refuses("does not concern intent", "resolve_failed", intent, letter=await desk.letter(other, "rejected"))


@pytest.mark.parametrize("reason", sorted(dead_letters.CLOSED_ALONE))
async def test_an_entry_about_a_settled_intent_is_closed_alone(desk: Desk, reason: str) -> None:
    intent = await desk.completed("k")
    letter = await desk.bury(intent, reason)
    before = (await desk.spine.key(intent), await desk.version(intent))
    await desk.spine.run(dead_letters.close_dead_letter, letter, by="ada", reason="refunded", version=before[1], seen=1)
    assert (await desk.spine.key(intent), await desk.version(intent)) == before
    assert await desk.spine.letters(intent) == []
    assert ("operator", "dead_letter_closed", None) in await desk.spine.evidence(intent)


async def test_an_entry_that_asks_for_a_settlement_or_was_seen_again_is_not_closed_alone(desk: Desk) -> None:
    held, conflict = await desk.held("k"), await desk.completed("c")
    seen = await desk.bury(conflict, "conflict")
    await desk.spine.execute("UPDATE idem.dead_letters SET seen = 2 WHERE id = %s", (seen,))
    for intent, letter, words in (
        (held, await desk.letter(held, "rejected"), "asks for its intent to be settled"),
        (conflict, seen, "changed after"),
    ):
        given = {"by": "ada", "reason": "r", "version": await desk.version(intent), "seen": 1}
        with pytest.raises(OperatorRefused, match=words):
            await desk.spine.run(dead_letters.close_dead_letter, letter, **given)


async def test_only_an_entry_without_an_intent_is_discarded(desk: Desk) -> None:
    held = await desk.letter(await desk.held("k"), "rejected")
    stray = await desk.bury(None, "unmatched_webhook", "bank/evt_1")
    for letter, words in ((held, "would stay unsettled"), (stray, None), (stray, "already resolved: discarded")):
        with pytest.raises(OperatorRefused, match=words) if words else nullcontext():
            await desk.spine.run(dead_letters.discard, letter, by="ada", reason="a test event", seen=1)
