"""What a provider has said of a failed call is kept, redacted and for its time, and shown masked unless asked for."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fix_desk import Desk

from idem.outbox.config.settings import SweeperSettings
from idem.outbox.domain import redaction
from idem.outbox.domain.contract import Account, Response
from idem.outbox.domain.outcomes import Seen
from idem.outcomes import Ambiguous, NotExecuted, Pending, Refused, Succeeded
from idem.sweeper.daemon import Sweeper


async def failed(desk: Desk, fault: str, key: str = "k") -> UUID:
    intent = await desk.spine.sent(key, faults=[fault])
    return intent


async def kept(desk: Desk) -> list[dict[str, Any]]:
    return await desk.spine.all("SELECT * FROM idem.provider_answers ORDER BY at")


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("422_before_acting", "not_executed:request"), ("act_then_500", "ambiguous"), ("decline", "refused"),
     ("401", "not_executed:config")],
)  # fmt: skip
async def test_the_answer_of_a_call_that_was_no_success_is_kept(desk: Desk, fault: str, outcome: str) -> None:
    intent = await failed(desk, fault)
    (row,) = await kept(desk)
    assert (row["intent_id"], row["outcome"], row["attempt"], row["times"]) == (intent, outcome, 1, 1)
    assert row["http_status"] and row["body"]


async def test_a_success_keeps_nothing(desk: Desk) -> None:
    await desk.spine.sent("k")
    assert await kept(desk) == []


async def test_the_newest_of_each_outcome_is_kept_and_counted(desk: Desk) -> None:
    intent = await failed(desk, "422_before_acting")
    for _ in range(2):
        await desk.act("redrive", intent)
        await desk.spine.work(faults=["422_before_acting"])
    (row,) = await kept(desk)
    assert (row["attempt"], row["times"]) == (3, 3)


async def test_shows_have_the_words_and_mask_the_values(desk: Desk) -> None:
    intent = await failed(desk, "422_before_acting")
    letter = await desk.letter(intent, "rejected")
    message = (await kept(desk))[0]["message"]
    assert message
    before = len(await desk.spine.evidence(intent))
    for command in (("dlq", "show", letter), ("intents", "show", intent)):
        shown = (await desk.cli(*command)).out
        assert message in shown and '"amount": "***"' in shown and '"amount":100' not in shown
    data = (await desk.cli("intents", "show", intent, "--json")).data
    assert data["answers"][0]["message"] == message
    assert json.loads(data["requests"][0]["body"])["amount"] == "***"
    assert len(await desk.spine.evidence(intent)) == before, "a masked look leaves no trace"


@pytest.mark.parametrize("what", ["dlq", "intents"])
async def test_who_unmasks_is_on_record_before_anything_is_shown(desk: Desk, what: str) -> None:
    intent = await failed(desk, "422_before_acting")
    about = await desk.letter(intent, "rejected") if what == "dlq" else intent
    result = await desk.cli(what, "show", about, "--unmask", "--json")
    shown = result.data if what == "intents" else result.data["intent"]
    assert json.loads(shown["requests"][0]["body"]) == {"amount": 100, "currency": "eur"}
    row = await desk.spine.one(
        "SELECT source, details FROM idem.evidence WHERE intent_id = %(i)s AND kind = 'unmasked'", i=intent
    )
    assert (row["source"], row["details"]["by"]) == ("operator", "grace")


async def test_they_go_after_their_time_but_not_from_under_an_open_entry(desk: Desk) -> None:
    await failed(desk, "422_before_acting", "open")
    done = await failed(desk, "decline", "done")
    settings = SweeperSettings(provider_answer_retention=3600)
    sweeper = Sweeper(desk.spine.database, desk.spine.catalogue, settings)
    await sweeper.run_once()
    assert len(await kept(desk)) == 2
    await desk.spine.advance(7200)
    assert (await sweeper.run_once()).provider_answers == 1
    assert done not in {row["intent_id"] for row in await kept(desk)}


SECRET = "sk_live_4711"


@pytest.mark.parametrize(
    "body",
    [
        f'{{"error": "bad key {SECRET}"}}',
        f'{{"password": "{SECRET}"}}',
        f'{{"Client-Secret" : "{SECRET}", "a": 1}}',
        f'{{"client_secret": "x{SECRET}',
        f"token={SECRET}&a=1",
        f"<p>{SECRET}</p>",
    ],
)
def test_secrets_are_taken_out_of_whatever_the_provider_sends(body: str) -> None:
    assert SECRET not in redaction.kept(body.encode(), [SECRET])
    named = "assword" in body or "ecret" in body or "token=" in body
    assert not named or SECRET not in redaction.kept(body.encode())


def test_card_numbers_are_taken_out_and_other_digits_stay() -> None:
    said = redaction.kept(b'{"number": "4242 4242 4242 4242", "id": "4242424242424241", "cvc": "123"}')
    assert "4242 4242" not in said and "4242424242424241" in said and "123" not in said


def test_no_more_than_2_kb_is_kept_and_masks_have_no_value() -> None:
    assert len(redaction.kept("ü".encode() * 5000).encode()) <= redaction.KEPT
    long = json.dumps({"name": "Ada", "amount": 4711, "rows": [{"iban": "DE1"}] * 50})
    for text in (long, long[:200], "Ada 4711", ""):
        masked = redaction.masked(text)
        assert "Ada" not in masked and "4711" not in masked and "DE1" not in masked


def test_what_is_read_grows_with_what_is_kept_and_not_with_the_answer() -> None:
    """Each costly shape, at the length that is read and at a hundred times of that: the same comes out."""
    for piece in (b'"' + b'\\"', b'{"a":', b"&a", b'"a" : "b', b"4242 "):
        body = piece * redaction.READ
        assert redaction.kept(body) == redaction.kept(body[: redaction.READ])


@pytest.mark.parametrize(
    ("outcome", "is_kept"),
    [(Succeeded("r"), False), (Pending("r"), False), (Refused("r"), True), (Ambiguous(), True),
     (NotExecuted("request"), True), (NotExecuted("config"), True), (NotExecuted("throttled"), False),
     (NotExecuted("transport"), False), (NotExecuted("given_back"), False)],
)  # fmt: skip
def test_which_answers_are_kept(outcome: Any, is_kept: bool) -> None:
    account = Account("a", "https://bank.example", {"authorization": f"Bearer {SECRET}"})
    response = Response(400, {}, f"you sent {SECRET}".encode())
    seen = redaction.quoted(replace(Seen(400), message=f"no {SECRET}"), response, outcome, account)
    assert (seen.body is not None) is is_kept
    assert SECRET not in f"{seen.body} {seen.message if is_kept else ''}"
