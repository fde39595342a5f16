"""Commands that only look: what they show, as tables and as JSON."""

import csv
import io
from uuid import uuid4

import pytest
from fix_desk import Desk

from idem.cli.base.output import table
from idem.outcomes import Succeeded


async def test_status_shows_the_oldest_of_everything(desk: Desk) -> None:
    unknown = await desk.unknown("u")
    await desk.live("l")
    held = await desk.held("h")
    await desk.pending("p")
    await desk.store_proof(unknown, Succeeded("pay_5"))
    await desk.spine.all("UPDATE idem.dead_letters SET created_at = now() - interval '3 h' RETURNING 1")
    await desk.spine.all(
        "INSERT INTO idem.daemons (id, kind, host, pid, seen_at, last_pass_at) VALUES"
        " ('worker-a', 'worker', 'h', 1, now(), now()), ('worker-b', 'worker', 'h', 2, now() - interval '5 min', NULL),"
        " ('sweeper-a', 'sweeper', 'h', 3, now() - interval '2 d', NULL) RETURNING 1"
    )
    found = (await desk.cli("status", "--json")).data
    assert found["installation"]["environment"] == "test"
    rows = {row["status"]: row for row in found["outbox"]}
    assert set(rows) == {"unknown", "claimed", "held", "pending"}
    assert rows["unknown"]["oldest"] > 190
    assert 0 < rows["unknown"]["replay_window_left"] < 86400
    assert rows["pending"]["replay_window_left"] is None
    assert [(row["provider"], row["account"], row["rows"]) for row in found["proofs"]] == [("keyed", "keyed", 1)]
    assert {(row["provider"], row["account"]) for row in found["outbox"]} == {("keyed", "keyed")}
    assert found["lanes"] == [{"provider": "keyed", "account": "keyed", "done_per_minute": 0.0, "breakers_open": 0}]
    assert [(row["reason"], row["rows"]) for row in found["dead_letters"]] == [("rejected", 1)]
    assert found["dead_letters"][0]["oldest"] > 3 * 3600 - 1
    lives = {each["id"]: each["life"] for each in found["daemons"]}
    assert lives == {"worker-a": "alive", "worker-b": "silent", "sweeper-a": "silent"}
    text = (await desk.cli("status")).out
    for word in (
        "unknown", "stored proofs", "rejected", "worker", "3h", "keyed/keyed", "succeeded a minute", "idem dlq list",
        "idem unknowns list",
    ):  # fmt: skip
        assert word in text
    assert str(held) not in text


async def test_status_tells_paused_lanes_apart(desk: Desk) -> None:
    await desk.pending("p")
    await desk.spine.all(
        "INSERT INTO idem.lanes (provider, account, paused, paused_by, reason)"
        " VALUES ('keyed', 'keyed', true, 'ada', 'maintenance') RETURNING 1"
    )
    found = (await desk.cli("status", "--json")).data
    assert [(row["status"], row["paused"]) for row in found["outbox"]] == [("pending", True)]
    assert found["paused"][0]["reason"] == "maintenance"
    text = (await desk.cli("status")).out
    assert "pending (paused)" in text and "maintenance" in text


async def test_unknowns_are_listed_and_exported(desk: Desk) -> None:
    intent = await desk.unknown("u")
    waiting = await desk.awaiting("a")
    await desk.bury(intent, "reconcile_exhausted")
    await desk.spine.all("UPDATE idem.intents SET label = '=1+1' WHERE id = %(i)s RETURNING 1", i=intent)
    (row,) = (await desk.cli("unknowns", "list", "--json")).data["unknowns"]
    assert (row["intent_id"], row["dead_letters"], row["attempt"]) == (str(intent), ["reconcile_exhausted"], 1)
    assert row["replay_window_left"] > 80000
    both = (await desk.cli("unknowns", "list", "--awaiting", "--json")).data["unknowns"]
    assert {each["intent_id"] for each in both} == {str(intent), str(waiting)}
    assert (await desk.cli("unknowns", "list", "--provider", "other")).out == "no unknown call matches\n"
    (exported,) = csv.DictReader(io.StringIO((await desk.cli("unknowns", "export")).out))
    assert (exported["intent_id"], exported["label"]) == (str(intent), "'=1+1")
    assert exported["provider_key"] == row["provider_key"]


async def test_intents_are_listed_in_pages_and_filtered(desk: Desk) -> None:
    old, new = await desk.completed("k1"), await desk.pending("k2")
    found = (await desk.cli("intents", "list", "--limit", 1, "--json")).data
    assert [each["id"] for each in found["intents"]] == [str(new)]
    following = (await desk.cli("intents", "list", "--limit", 1, "--before", found["next"], "--json")).data
    assert [each["id"] for each in following["intents"]] == [str(old)]
    for filters, count in (
        (("--state", "completed"), 1), (("--tenant", "t"), 2), (("--tenant", "x"), 0), (("--key", "k2"), 1),
        (("--operation", "pay.keyed", "--provider", "keyed"), 2),
    ):  # fmt: skip
        assert len((await desk.cli("intents", "list", *filters, "--json")).data["intents"]) == count
    assert "more: --before" in (await desk.cli("intents", "list", "--limit", 1)).err


async def test_an_intent_is_shown_with_its_timeline(desk: Desk) -> None:
    intent = await desk.completed("k1")
    data = (await desk.cli("intents", "show", intent, "--json")).data
    assert data["row"] is None
    assert data["response_status"] == 201
    assert data["created_at"].endswith("Z")
    text = (await desk.cli("intents", "show", intent)).out
    assert "in_progress → completed" in text and "pay_1" in text
    await desk.cli("intents", "show", uuid4(), code=1, err="does not exist in this database")


async def test_control_characters_of_a_client_do_not_reach_the_terminal(desk: Desk) -> None:
    intent = await desk.held("k")
    await desk.spine.all("UPDATE idem.intents SET label = E'red \\x1b[31m' WHERE id = %(i)s RETURNING 1", i=intent)
    for order in (("intents", "list"), ("intents", "show", intent)):
        assert "\x1b" not in (await desk.cli(*order)).out


async def test_looking_needs_no_configuration_and_writing_does(desk: Desk) -> None:
    intent = await desk.held("k")
    del desk.environment["BANK_TOKEN"]
    assert (await desk.cli("status")).code == 0
    letter = await desk.letter(intent, "rejected")
    assert (await desk.cli("dlq", "show", letter)).code == 0
    await desk.cli("dlq", "redrive", letter, "--reason", "r", "--yes", code=2, err="BANK_TOKEN")


async def test_config_show_has_no_secret_and_check_finds_mistakes(desk: Desk) -> None:
    shown = await desk.cli("config", "show", "--json", code=0)
    assert "keyed-token" not in shown.out
    assert shown.data["providers"]["keyed"]["accounts"]["keyed"]["authorization"]["env"] == "BANK_TOKEN"
    assert (await desk.cli("config", "check", "--json")).data["ok"] is True
    desk.environment["IDEM_WORKER_LEASE"] = "soon"
    wrong = await desk.cli("config", "check", "--json", code=2)
    assert wrong.data["ok"] is False
    assert wrong.data["findings"][0]["where"] == "IDEM_WORKER_LEASE"
    assert (await desk.cli("config", "show")).code == 2


def test_a_narrow_terminal_breaks_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    first, second = uuid4(), uuid4()
    table(["one", "what", "two"], [[first, "[red]a longer text with brackets", second]], empty="")
    words = screen.getvalue().split()
    assert str(first)[:13] in words
    assert all(word in (str(first)[:13], str(second)[:13]) for word in words if "-" in word)
    assert "[red]" in screen.getvalue()
