"""`idem dlq` and `idem intents cancel` as a person uses them: preview, question, act, and what is refused."""

import asyncio
import json
from pathlib import Path
from unittest import mock
from uuid import UUID, uuid4

import pytest
from fix_desk import Desk, Result

from idem.cli.operator import decision
from idem.outbox.worker.freezing import Freezer

WHY = ("--reason", "ticket 4711")


def refused(result: Result, *words: str) -> None:
    assert result.code == 1, result
    assert result.out == ""
    assert all(word in result.err for word in words), result.err
    assert "Traceback" not in result.err


async def test_show_says_that_the_configuration_cannot_be_used_and_why(desk: Desk) -> None:
    letter = await desk.letter(await desk.held("k1"), "rejected")
    with mock.patch.dict(desk.environment):
        del desk.environment["BANK_TOKEN"]
        shown = await desk.cli("dlq", "show", letter)
    assert shown.code == 0
    assert "the configuration cannot be used" in shown.err and "BANK_TOKEN is not set" in shown.err
    assert "is not in this configuration" not in shown.out
    assert "due in" not in shown.out and "left  -" not in shown.out


async def test_list_shows_open_entries_and_filters_them(desk: Desk) -> None:
    first, second = await desk.held("k1"), await desk.held("k2")
    stray = await desk.bury(None, "unmatched_webhook", "bank/evt_1")
    found = (await desk.cli("dlq", "list", "--json")).data
    assert [d["intent_id"] for d in found["dead_letters"]] == [str(first), str(second), None]
    assert found["next"] is None
    page = (await desk.cli("dlq", "list", "--limit", 2, "--json")).data
    rest = (await desk.cli("dlq", "list", "--limit", 2, "--after", page["next"], "--json")).data
    assert [d["id"] for d in rest["dead_letters"]] == [str(stray)]
    for option, value, count in (
        ("--provider", "keyed", 2), ("--provider", "other", 0), ("--reason-code", "rejected", 2),
        ("--since", "1h", 3), ("--since", "2099-01-01", 0),
    ):  # fmt: skip
        rows = (await desk.cli("dlq", "list", option, value, "--json")).data["dead_letters"]
        assert len(rows) == count, (option, value)
    await desk.act("redrive", first)
    assert len((await desk.cli("dlq", "list", "--json")).data["dead_letters"]) == 2
    assert len((await desk.cli("dlq", "list", "--all", "--json")).data["dead_letters"]) == 3
    await desk.cli("dlq", "list", out=(str(second), "rejected"))


async def test_show_tells_everything_and_what_can_be_done(desk: Desk) -> None:
    intent = await desk.unknown("key-1")
    letter = await desk.bury(intent, "reconcile_exhausted")
    data = (await desk.cli("dlq", "show", letter, "--json")).data
    assert data["intent"]["idempotency_key"] == "key-1"
    assert data["intent"]["row"]["quiet_left"] < 0
    assert data["intent"]["requests"][0]["path"] == "/payments"
    assert [entry["kind"] for entry in data["intent"]["timeline"]] == ["accepted", "report"]
    actions = {each["command"]: each["possible"] for each in data["actions"]}
    assert actions == {
        "resolve --as completed": True, "resolve --as failed_retryable": True, "redrive": True,
        "redrive --new-provider-key": False, "cancel": False,
    }  # fmt: skip
    text = (await desk.cli("dlq", "show", letter)).out
    for word in ("reconcile_exhausted", "key-1", "quiet time left", "what you can do", "POST /payments"):
        assert word in text


async def test_show_has_neither_credentials_nor_params_unless_asked(desk: Desk) -> None:
    _, letter = await desk.rejected()
    plain = (await desk.cli("dlq", "show", letter, "--json")).out
    assert "keyed-token" not in plain and '"amount": 100' not in plain and "params" not in plain
    asked = (await desk.cli("dlq", "show", letter, "--params", "--json")).data
    assert asked["intent"]["params"] == {"amount": 100}


async def test_integers_keep_every_digit(desk: Desk) -> None:
    intent = await desk.held("k")
    await desk.spine.all(
        "UPDATE idem.intents SET result = '{\"id\": 9007199254740993123}' WHERE id = %(i)s RETURNING 1", i=intent
    )
    out = (await desk.cli("intents", "show", intent, "--json")).out
    assert "9007199254740993123" in out


async def test_the_preview_comes_before_the_question_and_names_the_database(desk: Desk) -> None:
    intent, letter = await desk.rejected()
    result = await desk.cli("dlq", "redrive", letter, *WHY, answer="n\n")
    refused(result, "environment test, database", "sends it again", "Do it?", "nothing was changed")
    assert await desk.state(intent) == ("failed_retryable", "held")
    await desk.cli("dlq", "redrive", letter, *WHY, answer="y\n", code=0)
    assert await desk.state(intent) == ("in_progress", "pending")


async def test_where_nobody_can_answer_nothing_is_done(desk: Desk) -> None:
    intent, letter = await desk.rejected()
    refused(await desk.cli("dlq", "redrive", letter, *WHY), "--yes")
    assert await desk.state(intent) == ("failed_retryable", "held")


async def test_resolve_as_completed_renders_the_answer_of_the_configured_operation(desk: Desk) -> None:
    intent, letter = await desk.buried("unknown", "reconcile_exhausted")
    result = await desk.cli(
        "dlq", "resolve", letter, "--as", "completed", "--reference", "pay_7", "--provider-status", "succeeded", *WHY,
        "--unchecked", "--yes", "--json",
    )  # fmt: skip
    assert result.data == {
        "dead_letter": str(letter), "intent": str(intent), "action": "resolved_completed", "state": "completed",
        "status": None,
    }  # fmt: skip
    body = json.loads(bytes((await desk.spine.key(intent))["response_body"]))
    assert body == {"payment": "pay_7", "status": "succeeded"}
    row = await desk.spine.one("SELECT * FROM idem.dead_letters WHERE id = %(l)s", l=letter)
    assert row["resolved_by"].endswith(" / grace")


async def test_resolve_takes_an_answer_from_a_file(desk: Desk, tmp_path: Path) -> None:
    intent, letter = await desk.buried("unknown", "not_settleable")
    file = tmp_path / "answer.json"
    await asyncio.to_thread(file.write_text, '{"by": "hand"}')
    options = ("--as", "completed", "--outcome", "refused", "--answer", file, "--answer-status", "422")
    assert (await desk.cli("dlq", "resolve", letter, *options, "--unchecked", *WHY, "--yes")).code == 0
    key = await desk.spine.key(intent)
    assert (key["response_status"], bytes(key["response_body"])) == (422, b'{"by": "hand"}')
    bodiless = await desk.cli("dlq", "resolve", letter, *options[:-1], "204", *WHY)
    assert bodiless.code == 2 and "--answer-status" in bodiless.err and "does not allow one" in bodiless.err
    wrong = await desk.cli("dlq", "resolve", letter, "--as", "completed", "--reference", "x", "--answer", "no", *WHY)
    assert (wrong.code, wrong.err) == (1, "idem: no: No such file or directory\n")
    await asyncio.to_thread(file.write_text, "[" * 100_000)
    deep = await desk.cli("dlq", "resolve", letter, "--as", "completed", "--reference", "x", "--answer", file, *WHY)
    assert deep.code == 2 and "is nested too deeply" in deep.err and "Traceback" not in deep.err


async def test_resolve_as_failed_retryable_obeys_the_quiet_time(desk: Desk) -> None:
    intent = await desk.unknown("k", quiet=False)
    letter = await desk.bury(intent, "reconcile_exhausted")
    order = ("dlq", "resolve", letter, "--as", "failed_retryable", *WHY, "--yes")
    refused(await desk.cli(*order), "may still act", "--i-know-it-did-not-happen")
    await desk.cli(*order, "--i-know-it-did-not-happen", code=0, err="YOU OVERRIDE")
    assert await desk.state(intent) == ("failed_retryable", "held")
    assert await desk.spine.letters(intent) == ["too_late"], "P1: somebody must still say what is to become of it"


async def test_a_resolved_entry_still_leads_to_its_redrive(desk: Desk) -> None:
    intent, letter = await desk.buried("unknown", "reconcile_exhausted")
    await desk.cli("dlq", "resolve", letter, "--as", "failed_retryable", *WHY, "--yes")
    again = await desk.cli("dlq", "resolve", letter, "--as", "failed_retryable", *WHY, "--yes")
    refused(again, "is already resolved: resolved_failed", "grace")
    assert (await desk.cli("dlq", "redrive", letter, *WHY, "--yes")).code == 0
    assert await desk.state(intent) == ("in_progress", "pending")


async def test_closing_and_discarding(desk: Desk) -> None:
    intent = await desk.completed("k")
    conflict, stray = await desk.bury(intent, "conflict"), await desk.bury(None, "unmatched_webhook", "bank/evt_1")
    completed = await desk.cli("dlq", "resolve", conflict, "--as", "completed", "--reference", "p", *WHY, "--yes")
    refused(
        completed,
        "does not apply to a dead letter `conflict` of a completed intent",
        "Possible now: resolve --as closed",
    )
    refused(await desk.cli("dlq", "discard", conflict, *WHY, "--yes"), "Possible now: resolve --as closed")
    refused(await desk.cli("dlq", "resolve", stray, "--as", "closed", *WHY, "--yes"), "Possible now: redrive, discard")
    assert (await desk.cli("dlq", "resolve", conflict, "--as", "closed", *WHY, "--yes")).code == 0
    assert (await desk.cli("dlq", "discard", stray, *WHY, "--yes", "--json")).data["action"] == "discarded"
    assert (await desk.cli("dlq", "list", "--json")).data["dead_letters"] == []


async def test_what_moved_between_preview_and_answer_is_refused(desk: Desk) -> None:
    """The person reads the preview while the client's retry takes the intent up again."""
    intent, letter = await desk.buried("unknown", "reconcile_exhausted")
    other = {"version": await desk.version(intent)}

    def meanwhile(question: str, *, yes: bool) -> None:
        asyncio.run_coroutine_threadsafe(desk.act("resolve_failed", intent, **other), loop).result()

    loop = asyncio.get_running_loop()
    with mock.patch.object(decision, "confirm", meanwhile):
        result = await desk.cli("dlq", "resolve", letter, "--as", "failed_retryable", *WHY)
    refused(result, "changed after you read it")
    assert await desk.state(intent) == ("failed_retryable", "held")


async def test_a_live_lease_is_refused(desk: Desk) -> None:
    intent, letter = await desk.buried("live", "answer_failed")
    refused(await desk.cli("dlq", "redrive", letter, *WHY, "--yes"), "a call is in progress", "worker-1")
    refused(await desk.cli("intents", "cancel", intent, *WHY, "--yes"), "a call is in progress")


@pytest.mark.parametrize("command", ["show", "resolve", "redrive", "discard"])
async def test_an_id_that_is_none_or_unknown(desk: Desk, command: str) -> None:
    options = {"show": (), "resolve": ("--as", "closed", *WHY)}.get(command, WHY)
    unknown = uuid4()
    refused(await desk.cli("dlq", command, unknown, *options), f"there is no dead letter {unknown}", "idem dlq list")
    await desk.cli("dlq", command, "x1", *options, code=2, err="is not an id")


@pytest.mark.parametrize(
    "order",
    [
        ("dlq", "resolve", uuid4(), "--as", "completed", "--reference", "x"),
        ("dlq", "resolve", uuid4(), *WHY),
        ("dlq", "resolve", uuid4(), "--as", "done", *WHY),
        ("dlq", "resolve", uuid4(), "--as", "completed", *WHY),
        ("dlq", "redrive", uuid4()),
        ("dlq", "redrive", *WHY),
        ("dlq", "redrive", uuid4(), "--provider", "keyed", *WHY),
        ("dlq", "redrive", "--provider", "keyed", "--i-know-it-did-not-happen", *WHY),
        ("dlq", "discard", uuid4()),
        ("intents", "cancel", uuid4()),
        ("dlq", "list", "--since", "yesterday"),
        ("dlq", "list", "--reason-code", "late"),
    ],
)
async def test_wrong_usage_is_told_with_exit_code_2(desk: Desk, order: tuple[object, ...]) -> None:
    result = await desk.cli(*order, code=2, err=("Usage:", "Error:"))
    assert "Traceback" not in result.err


async def bulk(desk: Desk) -> tuple[list[UUID], UUID, list[UUID]]:
    """Two at rest, one unknown, three with a call in flight: all with an open dead letter."""
    rest = [await desk.held(f"r{n}") for n in range(2)]
    unknown = await desk.unknown("u")
    await desk.bury(unknown, "reconcile_exhausted")
    live = [await desk.live(f"l{n}") for n in range(3)]
    for intent in live:
        await desk.bury(intent, "answer_failed")
    return rest, unknown, live


async def test_many_at_once_need_the_count_and_leave_out_what_is_unknown_or_live(desk: Desk) -> None:
    rest, unknown, live = await bulk(desk)
    order = ("dlq", "redrive", "--provider", "keyed", *WHY, "--yes", "--json")
    refused(await desk.cli(*order), "6 intents match: 2 will be redriven", "--expect 6")
    refused(await desk.cli(*order, "--expect", 5), "6 intents match, but you expect 5")
    assert [await desk.state(each) for each in rest] == [("failed_retryable", "held")] * 2
    result = await desk.cli(*order, "--expect", 6, code=3)
    assert [each["intent"] for each in result.data["redriven"]] == [str(each) for each in rest]
    skipped = {each["intent"]: each["why"] for each in result.data["skipped"]}
    assert "it is unknown" in skipped.pop(str(unknown))
    assert set(skipped) == {str(each) for each in live}
    assert all("a call is in progress" in why for why in skipped.values())
    await desk.spine.work(after=1)
    assert desk.spine.effects() == 2


async def test_many_at_once_are_released_at_a_rate(desk: Desk) -> None:
    for number in range(3):
        await desk.held(f"k{number}")
    order = ("dlq", "redrive", "--reason-code", "rejected", "--expect", 3, "--rate", "0.5", *WHY, "--yes")
    assert (await desk.cli(*order)).code == 0
    rows = await desk.spine.all(
        "SELECT extract(epoch FROM available_at - now())::float8 AS due, start_before > available_at AS time"
        " FROM idem.outbox ORDER BY available_at"
    )
    # From the first on: how long ago the command ran says nothing.
    assert [round((row["due"] - rows[0]["due"]) / 2) for row in rows] == [0, 1, 2]
    assert all(row["time"] for row in rows)


async def test_intents_cancel_previews_and_cancels(desk: Desk) -> None:
    intent = await desk.pending("k")
    await desk.cli("intents", "cancel", intent, *WHY, answer="y\n", code=0, err="409 `cancelled`")
    assert await desk.state(intent) == ("completed", None)
    refused(await desk.cli("intents", "cancel", intent, *WHY, "--yes"), "already completed")
    refused(await desk.cli("intents", "cancel", uuid4(), *WHY, "--yes"), "does not exist in this database")


async def test_another_reference_than_the_providers_own_warns_and_opens_a_possible_duplicate(desk: Desk) -> None:
    intent, letter = await desk.buried("awaiting", "pending_too_long")
    order = ("dlq", "resolve", letter, "--as", "completed", "--reference", "pay_7", "--unchecked", *WHY, "--yes")
    await desk.cli(*order, code=0, err="WARNING: the recorded provider reference is pay_9")
    assert await desk.spine.letters(intent) == ["possible_duplicate"]


async def test_an_end_without_a_reference_warns_of_no_second_one(desk: Desk) -> None:
    intent, letter = await desk.buried("awaiting", "conflict")
    order = ("dlq", "resolve", letter, "--as", "completed", "--outcome", "refused", "--unchecked", *WHY, "--yes")
    result = await desk.cli(*order)
    assert result.code == 0 and await desk.state(intent) == ("completed", None)
    assert "None" not in result.err and "possible_duplicate" not in result.err


async def test_to_close_a_conflict_of_a_row_that_is_still_asked_about_ends_nothing_and_says_so(desk: Desk) -> None:
    intent, letter = await desk.buried("awaiting", "conflict")
    result = await desk.cli("dlq", "resolve", letter, "--as", "closed", *WHY, "--yes")
    assert result.code == 0 and await desk.state(intent) == ("in_progress", "awaiting")
    assert "the next contradiction opens another entry. To end it: resolve --as completed" in result.err


async def test_after_a_restore_nothing_at_rest_is_redriven(desk: Desk) -> None:
    """The restored database calls it `held`; what happened after the backup it does not know (Recovery)."""
    intent = await desk.held("k")
    await desk.spine.all("UPDATE idem.outbox SET operation = 'pay.keyless' RETURNING 1")
    letter = await desk.letter(intent, "rejected")
    await desk.spine.all("UPDATE idem.installation SET system_identifier = 1 RETURNING 1")
    await desk.cli("dlq", "redrive", letter, *WHY, "--yes", code=1)
    assert await desk.state(intent) == ("unknown", "unknown")


async def test_a_new_provider_key_waits_until_nothing_sent_can_act(desk: Desk) -> None:
    intent, letter = await desk.rejected()
    order = ("dlq", "redrive", letter, "--new-provider-key", *WHY, "--yes")
    before = await desk.spine.row(intent)
    refused(await desk.cli(*order), "a new provider key only after", "may still act")
    assert await desk.spine.row(intent) == before
    await desk.spine.advance(61)
    assert (await desk.cli(*order)).code == 0
    await Freezer(desk.spine.database, desk.spine.catalogue).once()
    after = await desk.spine.row(intent)
    assert before is not None and after is not None
    assert after["generation"] == 2 and after["provider_key"] != before["provider_key"]
    evidence = await desk.spine.one("SELECT details FROM idem.evidence WHERE kind = 'rendered'")
    assert evidence["details"]["old_provider_key"] == str(before["provider_key"])
    await desk.cli("dlq", "redrive", "--provider", "keyed", "--new-provider-key", *WHY, code=2)
