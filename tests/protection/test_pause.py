"""What a pause stops, and what it leaves alone: calls, look-ups, accept, of one account or of all."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from fix_accept import Acceptor
from fix_api import Client
from fix_spine import KEYED, Spine, catalogue
from fix_waiting import running, until
from inline import buying
from producers.application import accept, synced

from idem.decisions import Accepted, InProgress, Replay
from idem.errors import AcceptPaused, OperatorRefused, StoreUnavailable
from idem.outbox.config.settings import WorkerSettings
from idem.outbox.domain.contract import LookupRule
from idem.outbox.inline import InlineRun, InlineRuns
from idem.outbox.operator import pause as pausing
from idem.outbox.worker import claim as claims
from idem.outbox.worker.worker import Worker
from idem.testing.bank import RequestMatch

EITHER = pytest.mark.parametrize("account", ["", "keyed"], ids=["all", "one"])


@EITHER
async def test_paused_calls_are_not_made_and_go_out_after_the_resume(
    spine: Spine, pause: Any, resume: Any, account: str
) -> None:
    spine.accepted()
    spine.accepted("other", operation="pay.keyless")
    assert await pause("calls", account=account) == ["calls"]
    assert (await spine.work()).claimed == 1
    assert [each.account for each in spine.bank.log.requests] == ["keyless"]
    assert await resume(account=account) == {account: ["calls"]}
    assert (await spine.work()).claimed == 1


async def test_paused_lookups_ask_nothing_and_replays_go_on(spine: Spine, pause: Any, resume: Any) -> None:
    spine.bank.script(None, ["drop_before_acting", "drop_before_acting"])
    spine.accepted()
    await spine.sent("k2", operation="pay.keyless")
    await spine.advance(10)
    await pause("lookups")
    await pause("lookups", provider="keyless")
    before = len(spine.bank.log.requests)
    assert (await spine.reconcile()).settled == {"replay:succeeded": 1}
    assert [each.method for each in spine.bank.log.requests[before:]] == ["POST"]
    await resume(provider="keyless")
    assert (await spine.reconcile()).asked == {"kept": 1}
    assert spine.bank.log.requests[-1].method == "GET"


async def test_paused_calls_leave_look_ups_and_send_no_replay(spine: Spine, pause: Any, resume: Any) -> None:
    intent = await spine.sent(faults=["drop_before_acting"])
    await spine.advance(10)
    await pause("calls")
    before = len(spine.bank.log.requests)
    assert (await spine.reconcile()).asked == {"kept": 1}
    assert {each.method for each in spine.bank.log.requests[before:]} == {"GET"}
    await spine.expect(intent, attempt=1)
    await resume()
    assert (await spine.reconcile(after=40)).settled == {"replay:succeeded": 1}


async def test_a_row_that_can_only_be_replayed_waits_for_the_pause_and_is_not_given_up(
    spine: Spine, pause: Any, resume: Any
) -> None:
    """Where nothing can be asked, a taken row would end as `not_settleable`: from the pause alone."""
    spine.change("keyed", contract=replace(KEYED, lookup=LookupRule()), lookups=())
    intent = await spine.sent(faults=["drop_before_acting"])
    await spine.advance(10)
    await pause("calls")
    assert (await spine.reconcile()).asked == {}
    assert await spine.letters(intent) == []
    await resume()
    assert (await spine.reconcile()).settled == {"replay:succeeded": 1}


async def test_everything_paused_is_touched_by_nobody(spine: Spine, pause: Any) -> None:
    intent = await spine.sent(faults=["drop_before_acting"])
    await spine.advance(10)
    row = await spine.row(intent)
    await pause("calls", "lookups")
    await spine.reconcile()
    assert await spine.row(intent) == row


async def test_paused_accept_refuses_what_is_new_and_answers_what_is_known(
    spine: Spine, pause: Any, resume: Any
) -> None:
    """Applications answer StoreUnavailable with 503 already."""
    assert issubclass(AcceptPaused, StoreUnavailable)
    done = await spine.sent("done")
    waiting = spine.accepted("waiting")
    await pause("accept", reason="queue too long")
    with pytest.raises(AcceptPaused, match="accept of provider keyed, account keyed is paused, by ada: queue too long"):
        spine.accept("new")
    assert isinstance(replay := spine.accept("done"), Replay) and replay.intent_id == done
    assert isinstance(known := spine.accept("waiting"), InProgress) and known.intent_id == waiting
    assert isinstance(spine.accept("other", operation="pay.keyless"), Accepted)
    assert await spine.all("SELECT FROM idem.idempotency_keys WHERE idempotency_key = 'new'") == []
    await resume()
    assert isinstance(spine.accept("new"), Accepted)


async def test_retries_and_redrives_go_back_to_work_while_accept_is_paused(spine: Spine, pause: Any) -> None:
    intent = await spine.sent(faults=["422_before_acting"])
    await spine.all("UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'y' RETURNING 1")
    await pause("accept")
    assert type(spine.accept()).__name__ == "Retrying"
    await spine.work()
    assert (await spine.key(intent))["state"] == "completed"


async def test_the_http_api_says_503_paused_and_when(spine: Spine, api: Client, pause: Any) -> None:
    assert (await api.ask("known")).status_code == 202
    await pause("accept", reason="secret of ours")
    answer = await api.ask("new")
    assert answer.status_code == 503
    assert answer.json()["code"] == "paused"
    assert answer.headers["retry-after"] == "60"
    assert "secret" not in answer.text and "ada" not in answer.text
    assert (await api.ask("known")).json()["code"] == "in_progress"
    assert (await api.http.get("/problems/paused")).status_code == 200


@pytest.mark.parametrize("what", ["accept", "calls"])
async def test_an_inline_caller_is_refused_before_it_calls(spine: Spine, pause: Any, resume: Any, what: str) -> None:
    """Its begin is both: a new intent, and a call that it makes at once."""
    known = buying.buying(spine.bank.url)
    async with InlineRuns(spine.database, known) as runs:
        run = await runs.begin(buying.prepared(known, spine.url, "buy.keyed", "first"))
        assert isinstance(run, InlineRun)
        await run.not_executed("out of stock")
        await pause(what)
        with pytest.raises(AcceptPaused):
            await runs.begin(buying.prepared(known, spine.url, "buy.keyed", "k1"))
        again = runs.begin(buying.prepared(known, spine.url, "buy.keyed", "first"))
        if what == "calls":
            with pytest.raises(AcceptPaused, match="calling of provider keyed"):
                await again
        else:
            again.close()
        await resume()
        begun = await runs.begin(buying.prepared(known, spine.url, "buy.keyed", "k1"))
        assert isinstance(begun, InlineRun)
        await begun.not_executed("out of stock")


async def test_sql_producers_hear_who_paused_it(spine: Spine, pause: Any) -> None:
    synced(spine.url, spine.catalogue)
    await pause("accept")
    with psycopg.connect(spine.url) as connection, pytest.raises(psycopg.DatabaseError) as caught:
        accept(connection)
    assert caught.value.sqlstate == "ID503"
    assert "idem resume keyed" in str(caught.value.diag.message_hint)


async def test_an_account_cannot_be_resumed_out_of_a_paused_provider(spine: Spine, pause: Any, resume: Any) -> None:
    await pause("calls")
    with pytest.raises(OperatorRefused, match="paused for all accounts"):
        await resume(account="keyed")
    await pause("calls", "lookups", account="keyed")
    assert await resume() == {"": ["calls"], "keyed": ["calls", "lookups"]}


async def test_history_tells_who_paused_what_and_why_and_is_append_only(spine: Spine, pause: Any, resume: Any) -> None:
    await pause("calls", "lookups", account="keyed")
    assert await pause("calls", account="keyed", reason="again") == []
    await pause("accept", account="keyed", reason="queue too long")
    await resume("lookups", account="keyed")
    rows = await spine.all("SELECT * FROM idem.lane_changes ORDER BY changed_at, what")
    assert [(r["what"], r["paused"], r["changed_by"], r["reason"]) for r in rows] == [
        ("calls", True, "ada", "ticket 7"), ("lookups", True, "ada", "ticket 7"),
        ("accept", True, "ada", "queue too long"), ("lookups", False, "grace", "over"),
    ]  # fmt: skip
    assert {r["database_role"] for r in rows} == {"postgres"}
    for statement in ("UPDATE idem.lane_changes SET reason = 'x'", "DELETE FROM idem.lane_changes"):
        with pytest.raises(psycopg.errors.CheckViolation):
            await spine.all(statement)
    (lane,) = await spine.all("SELECT paused, lookups_paused, accept_paused FROM idem.lanes")
    assert lane == {"paused": True, "lookups_paused": False, "accept_paused": True}


async def test_two_pauses_at_once_lose_nothing(spine: Spine, pause: Any) -> None:
    await asyncio.gather(*(pause(what, account="keyed") for what in pausing.EVERYTHING))
    (lane,) = await spine.all("SELECT paused, lookups_paused, accept_paused FROM idem.lanes")
    assert all(lane.values())


async def test_a_worker_that_runs_stops_at_once_does_not_spin_and_wakes_with_the_resume(
    spine: Spine, pause: Any, resume: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[float] = []
    claim = claims.claim

    async def counted(*arguments: Any, **options: Any) -> Any:
        statements.append(time.monotonic())
        return await claim(*arguments, **options)

    monkeypatch.setattr(claims, "claim", counted)
    only = replace(spine.catalogue, operations={"pay.keyed": spine.catalogue.operations["pay.keyed"]})
    async with running(Worker(spine.database, only, WorkerSettings(lease=30, margin=1, poll=20))):
        await pause("calls")
        for n in range(50):
            spine.accepted(f"k{n}")
        statements.clear()
        await asyncio.sleep(2)
        assert len(statements) <= 5
        assert spine.effects() == 0
        await resume()
        await until(spine.effects, seconds=10)  # long before the next poll
        # What a busy machine could not connect for in time waits for that.
        await until(lambda: spine.effects() == 50, seconds=60)


async def test_what_could_not_be_asked_about_is_due_when_it_is_resumed(spine: Spine, pause: Any, resume: Any) -> None:
    intent = await spine.sent(faults=["drop_before_acting"] * 3, match=RequestMatch(method=None))
    await spine.reconcile(after=10)
    await spine.expect(intent, failures=1)
    await pause("calls", "lookups")
    await spine.all("UPDATE idem.outbox SET available_at = now() + interval '1 hour' RETURNING 1")
    await resume()
    assert (await spine.reconcile()).asked != {}


async def test_a_pause_holds_across_restarts_and_an_acceptor_needs_none(spine: Spine, pause: Any) -> None:
    await pause("calls", "accept")
    fresh = catalogue(spine.bank.url)
    spine.catalogue, spine.acceptor = fresh, Acceptor(fresh.operations, fresh.providers)
    with pytest.raises(AcceptPaused):
        spine.accept()
    assert (await spine.work()).claimed == 0
