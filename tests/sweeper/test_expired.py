"""A claim whose lease ran out: what it becomes, and what is left alone."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.contract import Contract
from idem.outbox.domain.outcomes import Seen, name
from idem.outbox.domain.transition import Evidence
from idem.outbox.settle import decide
from idem.outbox.settle.expired_leases import sweep_expired
from idem.outbox.settle.locked_rows import read_locked
from idem.outbox.settle.proofs import change_one
from idem.outbox.settle.report import Report
from idem.outbox.settle.results import settle
from idem.outcomes import Absent, Succeeded
from idem.sweeper.daemon import Sweeper

SECONDS = "SELECT extract(epoch FROM quiet_after - %(until)s)::float8 FROM idem.outbox WHERE intent_id = %(i)s"


@pytest.mark.parametrize("inline", [False, True])
async def test_a_lease_that_ran_out_becomes_unknown_with_its_holder_on_record(rows: Any, inline: bool) -> None:
    """IB-021, hazards 11, 37: an expired claim is no permission to execute; inline rows know no second path."""
    (intent,) = await rows.claimed(inline=inline)
    before = await rows.row(intent)
    done = await rows.sweep()
    assert (done.swept, done.to_unknown, done.more) == (1, 1, False)
    row, key = await rows.row(intent), await rows.key(intent)
    assert (row["status"], row["claim_token"], row["sweeps"], key["state"]) == ("unknown", None, 1, "unknown")
    assert row["first_sent_at"] == before["first_sent_at"]
    (seen,) = await rows.all("SELECT * FROM idem.evidence WHERE intent_id = %(i)s AND kind = 'swept'", i=intent)
    assert (seen["source"], seen["token"], seen["attempt"]) == ("sweeper", before["claim_token"], 1)
    assert (seen["holder"], seen["claimed_until"]) == ("worker-1", before["claimed_until"])
    assert (seen["from_status"], seen["to_status"]) == ("claimed", "unknown")
    assert (await rows.sweep()).swept == 0


HOLDERS = {
    "nobody": (None, 120),
    "reaped": ("ended_at = statement_timestamp(), ended_how = 'reaped'", 0),
    "seen without it": ("seen_at = statement_timestamp()", 0),
    "seen with it": ("seen_at = statement_timestamp(), tokens = (SELECT array_agg(claim_token) FROM idem.outbox)", 120),
    "seen before": ("seen_at = statement_timestamp() - interval '1 day'", 120),
}


async def test_the_quiet_time_takes_in_a_pause_unless_the_holder_is_known_to_be_done(rows: Any) -> None:
    """Hazards 1, 54: the holder may be frozen before its first byte."""
    made = {}
    for holder, (daemon, _) in HOLDERS.items():
        (intent,) = await rows.claimed(holder=holder, key=holder)
        made[holder] = intent, (await rows.row(intent))["claimed_until"]
        if daemon is not None:
            await rows.execute(
                "INSERT INTO idem.daemons (id, kind, host, pid) VALUES (%(h)s, 'worker', 'h', 1)", h=holder
            )
            await rows.execute(f"UPDATE idem.daemons SET {daemon} WHERE id = %(h)s", h=holder)
    await rows.sweep()
    for holder, (intent, until) in made.items():
        quiet = await rows.value(SECONDS, until=until, i=intent)
        assert quiet == pytest.approx(60 + HOLDERS[holder][1]), holder


async def test_only_claimed_rows_whose_lease_is_over_are_swept(rows: Any) -> None:
    """Hazard 16: waiting rows have no lease; takes of the reconciler are no claims of a worker."""
    await rows.claimed(key="live", left=60)
    await rows.queued(key="queued")
    await rows.held(key="held", left=60)
    for status in ("unknown", "awaiting"):
        (intent,) = await rows.claimed(key=status)
        await rows.execute("UPDATE idem.outbox SET status = %(s)s WHERE intent_id = %(i)s", s=status, i=intent)
    assert (await rows.sweep()).swept == 0
    assert await rows.statuses() == {"claimed": 1, "pending": 1, "held": 1, "unknown": 1, "awaiting": 1}


async def test_without_its_start_mark_a_swept_row_goes_back_to_the_queue(rows: Any) -> None:
    """Hazard 1: the mark is committed before the first byte, so its absence proves that nothing was sent."""
    keyless = {"marks": True, "operation": "pay.keyless", "provider": "keyless"}
    (absent,) = await rows.claimed(key="absent", **keyless)
    (present,) = await rows.claimed(key="present", started=True, **keyless)
    done = await rows.sweep()
    assert (done.swept, done.given_back, done.to_unknown) == (2, 1, 1)
    await rows.expect(absent, status="pending", first_sent_at=None, sweeps=1, key="in_progress")
    assert (await rows.row(present))["status"] == "unknown"


async def test_a_row_that_is_not_configured_here_becomes_unknown_and_is_not_judged(rows: Any) -> None:
    """IB-023: another node serves it; here it gets the longest waits and no dead letter."""
    (intent,) = await rows.claimed(operation="pay.elsewhere", provider="elsewhere")
    until = (await rows.row(intent))["claimed_until"]
    await rows.sweep()
    assert ((await rows.row(intent))["status"], await rows.letters(intent)) == ("unknown", [])
    cautious = rows.known.cautious("pay.elsewhere", "elsewhere").contract
    quiet = await rows.value(SECONDS, until=until, i=intent)
    assert quiet == pytest.approx(cautious.flight_limit + cautious.pause_allowance)


async def test_a_row_is_judged_by_the_provider_that_was_called_not_by_the_one_of_its_operation_now(rows: Any) -> None:
    """The operation was pointed to a provider with shorter waits while the row was open (P2)."""
    (intent,) = await rows.claimed(operation="pay.keyed", provider="keyed")
    until = (await rows.row(intent))["claimed_until"]
    quick: Any = rows.known.providers["keyless"]
    quick = replace(quick, contract=replace(quick.contract, flight_limit=1.0, pause_allowance=0.0))
    moved = replace(rows.known.operations["pay.keyed"], provider="keyless", account="keyless")
    now = replace(
        rows.known,
        providers={**rows.known.providers, "keyless": quick},
        operations={**rows.known.operations, "pay.keyed": moved},
    )
    await Sweeper(rows.database, now).run_once()
    assert (await rows.row(intent))["status"] == "unknown"
    contract = rows.known.providers["keyed"].contract
    quiet = await rows.value(SECONDS, until=until, i=intent)
    assert quiet == pytest.approx(contract.flight_limit + contract.pause_allowance)


async def test_swept_three_times_its_verdict_opens_crashes_worker(rows: Any) -> None:
    """Hazard 28: no automatic redrive of a row that takes its worker with it each time."""
    (often,) = await rows.claimed(key="often", sweeps=2)
    (seldom,) = await rows.claimed(key="seldom", sweeps=1)
    await rows.sweep()
    seen, terms = Evidence("reconciler", "lookup", name(Absent())), rows.known.require("pay.keyed")
    for intent in (often, seldom):
        await rows.run(change_one, (await rows.row(intent))["id"], lambda found: decide.verdict(found.row, seen, terms))
    assert ((await rows.row(often))["sweeps"], await rows.letters(often)) == (3, ["crashes_worker"])
    assert (await rows.row(often))["redrive_at"] is None
    assert ((await rows.row(seldom))["sweeps"], await rows.letters(seldom)) == (2, [])
    assert (await rows.row(seldom))["redrive_at"] is not None


async def test_swept_three_times_before_it_ever_started_it_rests(rows: Any) -> None:
    """Hazard 28, where the start mark spares the reconciler."""
    (intent,) = await rows.claimed(sweeps=2, marks=True, operation="pay.keyless", provider="keyless")
    assert (await rows.sweep()).held == 1
    assert ((await rows.row(intent))["status"], await rows.letters(intent)) == ("held", ["crashes_worker"])
    assert (await rows.key(intent))["state"] == "failed_retryable"


async def test_a_stored_proof_is_folded_by_the_sweep_and_nothing_else_is_left(rows: Any) -> None:
    """Hazard 3e: the row completes; no dead letter, event or error of the end that it would have had without it."""
    sms = {"operation": "sms", "provider": "sms"}
    rows.known = Catalogue(
        rows.known.environment,
        {**rows.known.providers, "sms": replace(rows.known.providers["keyed"], contract=Contract("sms"))},  # type: ignore[type-var]
        {**rows.known.operations, "sms": replace(rows.known.operations["pay.keyed"], name="sms", provider="sms")},
    )
    intents = []
    for marks, sweeps in ((False, 0), (True, 0), (True, 2)):
        for where in ({}, sms):
            intents += await rows.claimed(key=f"{marks}{sweeps}{len(where)}", marks=marks, sweeps=sweeps, **where)
            await rows.prove(intents[-1], "succeeded")
    done = await rows.sweep()
    assert (done.swept, done.settled) == (6, 6)
    for intent in intents:
        key = await rows.key(intent)
        assert (key["state"], bytes(key["response_body"]), key["last_error_code"]) == ("completed", b"by proof", None)
        assert await rows.letters(intent) == []
    assert [e["type"] for e in await rows.all("SELECT type FROM idem.events")] == ["completed"] * 6
    assert await rows.value("SELECT count(*) FROM idem.proofs") == 0


async def test_a_proof_that_the_provider_is_working_moves_a_swept_row_to_awaiting(rows: Any) -> None:
    """Hazards 3, 14."""
    (intent,) = await rows.claimed()
    await rows.prove(intent, "pending", answered=False)
    assert (await rows.sweep()).settled == 1
    assert ((await rows.row(intent))["status"], (await rows.key(intent))["state"]) == ("awaiting", "in_progress")
    assert (await rows.key(intent))["last_error_code"] is None


async def test_proofs_that_disagree_leave_the_swept_row_unknown_with_a_conflict(rows: Any) -> None:
    """Hazard 3, P4."""
    (intent,) = await rows.claimed()
    await rows.prove(intent, "succeeded", "p-1")
    await rows.prove(intent, "refused", "p-1")
    assert (await rows.sweep()).to_unknown == 1
    assert ((await rows.key(intent))["state"], await rows.letters(intent)) == ("unknown", ["conflict"])


async def test_a_report_that_a_stored_proof_contradicts_is_written_as_a_conflict(rows: Any) -> None:
    """Hazard 3d: not left to the lease, where the sweep would settle what the proof alone says."""
    (intent,) = await rows.claimed(left=60)
    await rows.prove(intent, "refused", "p-1")
    terms = rows.known.require("pay.keyed")
    outcome = Succeeded("p-1", "succeeded")
    async with rows.database.connection() as connection:
        (found,) = await read_locked(connection, [(await rows.row(intent))["id"]])
        answer = terms.operation.answer(outcome, str(intent))
        fates = await settle(connection, [Report(found.row, outcome, Seen(http_status=201), terms, answer)])
    assert set(fates.values()) == {"folded"}
    assert ((await rows.row(intent))["status"], await rows.letters(intent)) == ("unknown", ["conflict"])


async def test_a_batch_that_others_hold_does_not_hide_the_row_behind_it(rows: Any, db_url: str) -> None:
    """IB-022: the first hundred cannot be swept, number 101 is, within one pass; the others within the next."""
    await rows.claimed(100, key="held by another", left=-60)
    (last,) = await rows.claimed(key="last")
    with psycopg.connect(db_url) as other:
        other.execute("SELECT id FROM idem.outbox WHERE intent_id <> %s FOR UPDATE", [last])
        assert (await rows.sweeper(batch=100).run_once()).swept == 1
        assert (await rows.row(last))["status"] == "unknown"
        assert await rows.run(sweep_expired, rows.known, batch=100) == []
    assert (await rows.sweep()).swept == 100


@pytest.mark.parametrize("bad", [1, 100])
async def test_a_row_that_cannot_be_written_stops_no_other(rows: Any, bad: int) -> None:
    """Hazard 20, IB-022: a page with a bad row is written one by one; a page of bad rows is passed by."""
    await rows.execute("ALTER TABLE idem.outbox ADD CONSTRAINT no CHECK (operation <> 'bad' OR status <> 'unknown')")
    await rows.claimed(bad, key="bad", operation="bad", left=-60)
    await rows.claimed(120, key="good")
    sweeper = rows.sweeper(batch=100)
    if bad == 100:
        with pytest.raises(psycopg.errors.CheckViolation):
            await sweeper.run_once()
    else:
        assert (await sweeper.run_once()).swept == 120
    assert await rows.statuses() == {"claimed": bad, "unknown": 120}
