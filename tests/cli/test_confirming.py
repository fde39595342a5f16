"""`dlq resolve --as completed` asks the provider first: its own object is the answer, and a typing error is none."""

import json
from typing import Any
from uuid import UUID

import pytest
from fix_desk import Desk, Result

from idem.outbox.domain.outcomes import Seen
from idem.outbox.operator import confirmation
from idem.outcomes import Absent, Pending, Refused, Succeeded

WHY = ("--reason", "seen in the portal", "--yes")


async def acted(desk: Desk, key: str = "k", fault: str = "act_then_500") -> tuple[UUID, UUID, str]:
    """An unknown intent, its dead letter, and the reference of what the provider has made of it."""
    intent = await desk.spine.sent(key, faults=[fault])
    letter = await desk.bury(intent, "reconcile_exhausted")
    made = desk.spine.bank.log.payments()
    return intent, letter, made[-1].id if made else "none"


async def completed(desk: Desk, letter: UUID, *options: str) -> Result:
    return await desk.cli("dlq", "resolve", letter, "--as", "completed", *options, *WHY)


async def evidence(desk: Desk, intent: UUID) -> dict[str, Any]:
    row = await desk.spine.one(
        "SELECT details FROM idem.evidence WHERE intent_id = %(i)s AND kind = 'resolved_completed'", i=intent
    )
    return dict(row["details"])


async def test_a_typing_error_is_refused_and_the_provider_was_asked(desk: Desk) -> None:
    intent, letter, _ = await acted(desk)
    asked = len(desk.spine.bank.log.records)
    result = await completed(desk, letter, "--reference", "pay_TYPO")
    assert result.code == 1
    assert "has nothing under reference pay_TYPO" in result.err and "--unchecked" in result.err
    assert len(desk.spine.bank.log.records) > asked
    assert await desk.state(intent) == ("unknown", "unknown")


async def test_the_answer_is_rendered_from_the_providers_own_object(desk: Desk) -> None:
    intent, letter, reference = await acted(desk)
    result = await completed(desk, letter, "--reference", reference, "--provider-status", "whatever")
    assert result.code == 0, result.err
    assert f"the provider says: succeeded, reference {reference}, status succeeded" in result.err
    body = json.loads(bytes((await desk.spine.key(intent))["response_body"]))
    assert body == {"payment": reference, "status": "succeeded"}
    assert (await evidence(desk, intent))["provider_said"] == "succeeded"


async def test_the_payment_of_another_intent_is_not_taken_for_this_one(desk: Desk) -> None:
    first = await desk.spine.sent("first")
    theirs = (await desk.spine.one("SELECT provider_reference AS r FROM idem.intents WHERE id = %(i)s", i=first))["r"]
    intent, letter, _ = await acted(desk)
    result = await completed(desk, letter, "--reference", theirs)
    assert result.code == 1 and str(first) in result.err and "this intent's own object" in result.err
    assert await desk.state(intent) == ("unknown", "unknown")
    own = await completed(desk, letter, "--reference", theirs, "--unchecked")
    (warned,) = [line for line in own.err.splitlines() if line.startswith("WARNING: UNCHECKED")]
    assert own.code == 0 and f"reference {theirs} belongs to another intent, {first}" in warned


async def test_the_provider_is_believed_about_how_it_ended(desk: Desk) -> None:
    intent, letter, reference = await acted(desk)
    result = await completed(desk, letter, "--reference", reference, "--outcome", "refused")
    assert result.code == 1 and "the provider says succeeded" in result.err and "you say refused" in result.err
    assert await desk.state(intent) == ("unknown", "unknown")


@pytest.mark.parametrize("why", ["the bank is away", "look-ups are paused", "another address"])
async def test_where_the_provider_cannot_be_asked_only_an_unchecked_word_is_recorded(desk: Desk, why: str) -> None:
    intent, letter, reference = await acted(desk)
    if why == "the bank is away":
        desk.spine.bank.script({"method": "GET"}, ["503"] * 3)
    elif why == "look-ups are paused":
        assert (await desk.cli("pause", "keyed", "--reason", "r")).code == 0
    else:
        await desk.spine.forced("UPDATE idem.outbox SET origin = 'https://other.example'")
    refused = await completed(desk, letter, "--reference", reference)
    assert refused.code == 1 and "it could not be confirmed" in refused.err and "--unchecked" in refused.err
    assert await desk.state(intent) == ("unknown", "unknown")
    done = await completed(desk, letter, "--reference", reference, "--unchecked")
    assert done.code == 0 and "WARNING: UNCHECKED: it could not be confirmed: " in done.err
    said = (await evidence(desk, intent))["provider_said"]
    assert said.startswith("nothing: ") or said == "succeeded"
    assert (await evidence(desk, intent))["reason"] == "seen in the portal"


@pytest.mark.parametrize(
    "look", [None, Absent(), Pending("pay_1"), Refused("pay_1"), Succeeded("pay_2"), Succeeded("pay_1", interim=True)]
)
def test_nothing_but_the_same_end_confirms_an_end(desk: Desk, look: Any) -> None:
    """Every answer of a provider against "it succeeded as pay_1"."""
    from idem.outbox.values.errors import OperatorRefused

    operation = desk.spine.catalogue.operations["pay.keyed"]
    confirmed = confirmation.Confirmed(look, Seen(), None if look is not None else "the bank is away")
    with pytest.raises(OperatorRefused, match="--unchecked"):
        confirmation.outcome_to_record(confirmed, Succeeded("pay_1"), operation, unchecked=False)
    assert confirmation.outcome_to_record(confirmed, Succeeded("pay_1"), operation, unchecked=True) == Succeeded(
        "pay_1"
    )
