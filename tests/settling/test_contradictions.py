"""Proofs that contradict each other, in every order: none is dropped in silence, none makes a second call."""

import asyncio
import json
from uuid import UUID, uuid4

import pytest
from fix_spine import Spine, catalogue
from fix_steps import answered, claim_due_row, claim_one, prove, report, settle

from idem import Answer
from idem.outbox.domain.contract import Response
from idem.outbox.domain.outbox_row import StoredProof
from idem.outbox.domain.outcomes import Proof, Seen
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle.proofs import apply
from idem.outcomes import Ambiguous, Outcome, Pending, Refused, Succeeded
from idem.sending import Question


@pytest.mark.parametrize(
    ("proven", "outcome", "letter"),
    [(("pay_a", "pay_b"), Ambiguous(), "possible_duplicate"), (("pay_a",), Refused("pay_a"), "conflict")],
    ids=["proofs that disagree", "a refusal against a success"],
)
async def test_proofs_that_contradict_each_other_are_never_overruled_by_not_found(
    spine: Spine, proven: tuple[str, ...], outcome: Outcome, letter: str
) -> None:
    """The look-up answers "nothing" for long enough. A redrive would be another call."""
    intent = spine.accepted(operation="pay.keyless")
    claimed = await claim_one(spine, "keyless")
    for reference in proven:
        assert await prove(spine, claimed.row.id, Succeeded(reference), "keyless") == "stored"
    assert await settle(spine, report(spine, claimed, outcome, "keyless")) == {claimed.row.id: "folded"}
    assert await spine.letters(intent) == [letter]
    for _ in range(6):
        await spine.reconcile(after=4000, hasten=True)
        await spine.work()
    await spine.expect(intent, effects=0, key="unknown")
    assert letter in await spine.letters(intent)


@pytest.mark.parametrize(
    ("proven", "reported"),
    [([Pending("pay_a")], "pay_b"), ([Succeeded("pay_a"), Succeeded("pay_b")], None)],
    ids=["pending under one, done under another", "one without a reference hides no two that have one"],
)
async def test_two_references_are_two_objects(spine: Spine, proven: list[Proof], reported: str | None) -> None:
    """Stored while the claim was live, folded by its report."""
    intent = spine.accepted()
    claimed = await claim_one(spine, "keyed")
    for proof in proven:
        assert await prove(spine, claimed.row.id, proof) == "stored"
    await settle(spine, report(spine, claimed, Succeeded(reported)))
    assert "possible_duplicate" in await spine.letters(intent)


async def test_two_references_of_an_awaited_row_are_two_objects(spine: Spine) -> None:
    """The later one does not take the place of the earlier in silence."""
    intent = spine.accepted()
    row = (await spine.row(intent))["id"]
    assert await prove(spine, row, Pending("pay_a")) == "applied"
    assert await prove(spine, row, Pending("pay_b")) == "applied"
    await spine.expect(intent, letters=["possible_duplicate"], provider_reference="pay_a")


async def test_another_pending_object_after_the_end_is_seen(spine: Spine) -> None:
    """The step is done; the provider now says that it works on a second object under the same key."""
    intent = spine.accepted()
    row = (await spine.row(intent))["id"]
    await prove(spine, row, Succeeded("pay_a"))
    assert await prove(spine, row, Pending("pay_a")) == "agrees"
    assert await prove(spine, row, Pending("pay_b")) == "conflict"
    assert await spine.letters(intent) == ["possible_duplicate"]


async def test_the_reference_is_kept_whoever_of_the_agreeing_knew_it(spine: Spine) -> None:
    intent = spine.accepted()
    claimed = await claim_one(spine, "keyed")
    assert await prove(spine, claimed.row.id, Succeeded("pay_a")) == "stored"
    await settle(spine, report(spine, claimed, Succeeded(None)))
    known = await spine.one("SELECT state, provider_reference FROM idem.intents WHERE id = %(i)s", i=intent)
    assert known == {"state": "completed", "provider_reference": "pay_a"}


async def test_two_reasons_to_fear_a_duplicate_still_settle(spine: Spine) -> None:
    """Known under another reference, and the look-up shows two objects: one entry, and the row does not get stuck."""
    intent = spine.accepted(operation="pay.keyless")
    row = (await spine.row(intent))["id"]
    await prove(spine, row, Pending("pay_a"), "keyless")
    await spine.advance(100)
    taken = await claim_due_row(spine, "keyless")
    assert await answered(spine, taken, Succeeded("pay_b", "succeeded"), Seen(200, copies=2)) == "settled"
    assert await spine.letters(intent) == ["possible_duplicate"]
    said = await spine.value("SELECT details::text FROM idem.dead_letters WHERE intent_id = %(i)s", i=intent)
    assert "pay_a" in said and "copies" in said


@pytest.mark.parametrize("order", [("declined", "succeeded"), ("succeeded", "declined")])
def test_of_several_objects_the_effect_is_the_answer(order: tuple[str, str]) -> None:
    """A list in any order: a decline beside a payment must not end as "refused" for ever."""
    provider = catalogue("http://127.0.0.1:1").providers["keyless"]
    key = str(uuid4())
    objects = [{"id": f"pay_{s}", "status": s, "reference": key, "amount": 1} for s in order]
    question = Question(key, None, awaiting=False)
    (request,) = provider.questions(question)
    body = json.dumps({"data": objects}).encode()
    look, seen = provider.read_lookup(Response(200, {"content-type": "application/json"}, body), question, request)
    assert look == Succeeded("pay_succeeded", "succeeded", {"amount": 1})
    assert seen.copies == 2


async def test_two_contradictions_at_once_are_both_on_record(spine: Spine) -> None:
    """The step is done, so no row's lock orders them: the numbers of the events must not collide."""
    for n in range(12):
        intent = spine.accepted(f"k{n}")
        row = (await spine.row(intent))["id"]
        await prove(spine, row, Succeeded("pay_a"))
        held = asyncio.Event()

        async def first(row: UUID = row, held: asyncio.Event = held) -> None:
            found = StoredProof(uuid4(), "webhook", Refused("pay_a"), Answer(402))
            terms = spine.catalogue.require("pay.keyed")
            async with spine.database.connection() as connection, connection.transaction():
                await apply(connection, row, found, Evidence("webhook", "webhook"), terms)
                held.set()
                await asyncio.sleep(0.05)

        async def second(row: UUID = row, held: asyncio.Event = held) -> str:
            await held.wait()
            return await prove(spine, row, Succeeded("pay_b"))

        _, became = await asyncio.gather(first(), second())
        assert became == "conflict"
        assert await spine.letters(intent) == ["conflict", "possible_duplicate"]
        numbers = "SELECT number FROM idem.events WHERE aggregateid = %(i)s ORDER BY 1"
        assert await spine.column(numbers, i=intent) == [1, 2, 3]
