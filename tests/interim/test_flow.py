"""A charge that needs its customer: told what the customer needs, settled later (hazards 14, 71)."""

import json

import pytest
from fix_webhooks import event
from interim.shop import KINDS, Shop, body, redirect

from idem.outcomes import Succeeded


async def test_hazard_14_the_customer_is_sent_on_while_the_end_is_awaited(shop: Shop) -> None:
    intent = await shop.charge("final")
    (payment,) = shop.spine.bank.log.payments()
    wanted = {"payment": payment.id, "redirect": redirect(payment.id)}

    for answer in (await shop.pay("final"), await shop.pay("final", wait=1)):
        assert answer.status_code == 202
        assert (body(answer)["status"], body(answer)["interim"]) == ("awaiting_provider", wanted)
        assert answer.headers["retry-after"] and answer.headers["location"].endswith(str(intent))
    shown = await shop.shown(intent)
    assert (shown["state"], shown["status"], shown["interim"], shown["answer"]) == (
        "in_progress", "awaiting_provider", wanted, None,
    )  # fmt: skip
    assert (await shop.hooks.desk.cli("intents", "show", intent, "--json")).data["interim"] == wanted
    assert redirect(payment.id) in (await shop.hooks.desk.cli("intents", "show", intent)).out
    assert await shop.events(intent) == []

    await shop.poll()
    answer = await shop.pay("final")
    assert (answer.status_code, body(answer)) == (201, {"payment": payment.id, "status": "succeeded"})
    shown = await shop.shown(intent)
    assert (shown["state"], shown["interim"], shown["answer"]["status"]) == ("completed", None, 201)
    assert (await shop.stored(intent))["interim"] is None
    assert await shop.events(intent) == [("completed", "succeeded", False)]
    assert shop.spine.effects() == 1


async def test_hazard_71_a_key_that_completes_when_the_object_exists(shop: Shop) -> None:
    intent = await shop.charge("exists")
    (payment,) = shop.spine.bank.log.payments()
    first = await shop.pay("exists")
    assert (first.status_code, body(first)) == (
        201, {"payment": payment.id, "status": "requires_action", "redirect": redirect(payment.id)},
    )  # fmt: skip
    assert await shop.events(intent) == [("completed", "succeeded", True)]
    assert (await shop.stored(intent))["object_end"] == "open"

    assert await shop.says(intent, "processing", "evt_0") == "agrees"
    assert await shop.says(intent, "succeeded", "evt_1") == "agrees"
    assert await shop.says(intent, "succeeded", "evt_2") == "agrees"
    again = await shop.pay("exists")
    assert (again.status_code, again.content) == (201, first.content)
    assert await shop.events(intent) == [("completed", "succeeded", True), ("later_fact", "succeeded", False)]
    assert await shop.spine.letters(intent) == []
    assert (await shop.shown(intent))["state"] == "completed"

    # Now its end is known, and a refusal contradicts it.
    assert await shop.says(intent, "declined", "evt_3") == "conflict"
    assert await shop.spine.letters(intent) == ["conflict"]


async def test_a_challenge_that_fails_after_the_key_is_complete_is_a_later_fact(shop: Shop) -> None:
    intent = await shop.charge("exists")
    first = await shop.pay("exists")
    for number in (1, 2):
        assert await shop.says(intent, "declined", f"evt_{number}") == "later_fact"
    assert await shop.events(intent) == [("completed", "succeeded", True), ("later_fact", "refused", False)]
    # Another card, the same payment.
    assert await shop.says(intent, "succeeded", "evt_3") == "agrees"
    assert (await shop.events(intent))[-1] == ("later_fact", "succeeded", False)
    assert await shop.spine.letters(intent) == []
    again = await shop.pay("exists")
    assert (again.status_code, again.content) == (first.status_code, first.content)
    told = await shop.spine.all(
        "SELECT payload FROM idem.events WHERE aggregateid = %(i)s AND type = 'later_fact' ORDER BY number", i=intent
    )
    (payment,) = shop.spine.bank.log.payments()
    wanted = {
        "intent": str(intent), "tenant": "t", "operation": "pay.exists", "state": "completed", "outcome": "refused",
        "provider_reference": payment.id, "status": "declined", "fields": {},
    }  # fmt: skip
    assert told[0]["payload"] == told[0]["payload"] | wanted
    assert ("webhook", "webhook_compared", "refused") in await shop.spine.evidence(intent)


async def test_a_refusal_against_an_end_is_a_conflict_in_both_kinds(shop: Shop) -> None:
    for kind in KINDS:
        intent = await shop.charge(kind, "none", key=kind)
        assert (await shop.stored(intent))["object_end"] is None
        reference = (await shop.stored(intent))["provider_reference"]
        content = event(await shop.hooks.key(intent), "declined", reference)
        assert await shop.hooks.fate(content, f"evt_{kind}") == "conflict"
        assert await shop.spine.letters(intent) == ["conflict"]


async def test_another_object_after_completion_is_a_possible_duplicate(shop: Shop) -> None:
    intent = await shop.charge("exists")
    assert await shop.says(intent, "succeeded", reference="pay_other") == "conflict"
    assert await shop.spine.letters(intent) == ["possible_duplicate"]
    assert [kind for kind, _, _ in await shop.events(intent)] == ["completed", "corrected"]
    assert (await shop.stored(intent))["object_end"] == "open"


async def test_pending_completes_where_existing_is_enough(shop: Shop) -> None:
    intent = await shop.charge("exists", "pending:600")
    answer = await shop.pay("exists")
    assert (answer.status_code, body(answer)["status"]) == (201, "processing")
    assert await shop.says(intent, "declined") == "later_fact"
    assert (await shop.pay("exists")).content == answer.content


@pytest.mark.parametrize("how", ["poll", "webhook"])
async def test_a_challenge_that_fails_while_its_end_is_awaited_is_the_answer(shop: Shop, how: str) -> None:
    intent = await shop.charge("final", "requires_action_then_declined:600")
    if how == "poll":
        await shop.poll()
    else:
        assert await shop.says(intent, "declined") == "applied"
    answer = await shop.pay("final")
    assert (answer.status_code, body(answer)["status"]) == (402, "declined")
    assert await shop.events(intent) == [("completed", "refused", False)]
    assert await shop.spine.letters(intent) == []
    assert (await shop.stored(intent))["interim"] is None


async def test_a_newer_interim_answer_takes_the_place_of_the_one_before(shop: Shop) -> None:
    """Whoever sees it: worker, webhook, reconciler."""
    intent = await shop.charge("final", "pending:600")
    (payment,) = shop.spine.bank.log.payments()
    assert body(await shop.pay("final"))["interim"] == {"reference": payment.id, "status": "processing"}
    action = {"type": "redirect", "url": "https://acs.bank.example/second"}
    assert await shop.says(intent, "requires_action", next_action=action) == "applied"
    assert body(await shop.pay("final"))["interim"] == {
        "payment": payment.id, "redirect": "https://acs.bank.example/second",
    }  # fmt: skip
    await shop.spine.reconcile(after=120)
    assert body(await shop.pay("final"))["interim"] == {"reference": payment.id, "status": "processing"}
    assert await shop.says(intent, "succeeded", "evt_2") == "applied"
    assert (await shop.pay("final")).status_code == 201


async def test_what_the_timeline_says(shop: Shop) -> None:
    intent = await shop.charge("final")
    assert (await shop.spine.evidence(intent))[-1] == ("worker", "report", "interim")
    timeline = (await shop.shown(intent))["timeline"]
    assert (timeline[-1]["outcome"], timeline[-1]["status"]) == ("interim", "awaiting_provider")


async def test_an_operator_may_say_how_it_ended(shop: Shop) -> None:
    intent = await shop.charge("final")
    (payment,) = shop.spine.bank.log.payments()
    await shop.hooks.desk.act("resolve_completed", intent, outcome=Succeeded(payment.id, "succeeded"))
    answer = await shop.pay("final")
    assert answer.status_code == 201
    assert json.loads(answer.content)["payment"] == payment.id
