"""Attacks on what a fleet shares: the one place of a lane of one, and a row whose cancel was lost."""

import asyncio
import time

import psycopg
import pytest
from fix_spine import KEYED, Spine
from fix_steps import claim, claim_due
from protection.limited import backlog, limited
from schema.buried import BURIED
from settling.shop import cancelling, cancels, sends

from idem.outbox.daemon.daemon import Life, end_daemon
from idem.outbox.domain.limits import Limits

ONE = Limits(concurrency=1)


async def living(spine: Spine, kind: str = "reconciler") -> Life:
    """A daemon of this kind has just given a heartbeat."""
    life = Life(kind)
    await spine.run(life.beat)
    return life


async def test_sends_that_never_stop_leave_a_lane_of_one_to_a_question(spine: Spine) -> None:
    """A worker that claims again as soon as its call ends would keep every question out until nothing settles it."""
    await backlog(spine, unknown=1, pending=5)
    await living(spine)
    limited(spine, ONE)
    assert len(await claim(spine, limit=100, lease=20)) == 1
    await spine.advance(40)
    assert await claim(spine, limit=100) == []
    assert len(await claim_due(spine, limit=100)) == 1
    assert await claim(spine, limit=100) == []
    await spine.advance(31)
    await spine.execute("UPDATE idem.outbox SET available_at = now() + interval '1 h' WHERE status = 'unknown'")
    assert len(await claim(spine, limit=100)) == 1


@pytest.mark.parametrize("who", ["nobody", "worker", "silent", "ended", "nobody yet"])
async def test_a_lane_of_one_is_kept_for_nobody_who_could_not_ask(spine: Spine, who: str) -> None:
    """Nor for a question that is due just now."""
    await backlog(spine, unknown=1, pending=5)
    if who != "nobody":
        life = await living(spine, "worker" if who == "worker" else "reconciler")
        if who == "silent":
            await spine.execute("UPDATE idem.daemons SET seen_at = now() - interval '31 s'")
        if who == "ended":
            await spine.run(end_daemon, life.id)
    await spine.advance(0 if who == "nobody yet" else 40)
    limited(spine, ONE)
    assert len(await claim(spine, limit=100)) == 1


async def test_a_row_that_a_proof_waits_for_keeps_nothing_free(spine: Spine) -> None:
    """No take gets it. A hint is no proof, and the row is asked about all the same."""
    await backlog(spine, unknown=2, pending=20)
    await living(spine)
    await spine.advance(40)
    proof = (
        "INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome, reference)"
        " SELECT id, intent_id, 'webhook', %(outcome)s, 'pay_1' FROM idem.outbox WHERE status = 'unknown'"
    )
    await spine.execute(proof, outcome="hint")
    assert await room(spine, 1, 1) == 0
    assert await room(spine, 10, 5) == 8
    await spine.execute(proof, outcome="pending")
    assert await room(spine, 1, 1) == 1
    assert await room(spine, 10, 5) == 10


async def room(spine: Spine, concurrency: int, asking: int) -> int:
    sql = "SELECT idem.lane_capacity('keyed', 'keyed', %(c)s, %(a)s, false, 100)"
    return int(await spine.value(sql, c=concurrency, a=asking))


async def test_a_row_that_nobody_asks_about_does_not_stop_a_lane_of_one(spine: Spine) -> None:
    """Its operation is gone, say. Sends and questions take turns; neither waits for ever."""
    await backlog(spine, unknown=1, pending=5)
    await living(spine)
    await spine.advance(700)
    seen: set[int] = set()
    for _ in range(60):
        await spine.execute("UPDATE idem.daemons SET seen_at = now()")
        seen.add(await room(spine, 1, 1))
        if seen == {0, 1}:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"the lane is kept free, or never is: room {seen}")


async def test_a_cancel_whose_answer_was_lost_is_repeated_and_the_key_not_sent_again(spine: Spine) -> None:
    """The key is burned, the row unknown, the replay window open."""
    cancelling(spine, key=KEYED.key, strategies=("cancel_by_key", "replay"))
    intent = await spine.sent(faults=["act_then_drop"])
    spine.bank.script({"path": "/payments/cancel"}, ["act_then_drop"])
    await spine.reconcile(after=KEYED.flight_limit + 10)
    await spine.advance(KEYED.flight_limit * 2)
    await spine.expect(intent, status="unknown", key_burned=True, attempt=2)
    # A new attempt under the burned key.
    assert dict((await spine.reconcile()).settled) == {"cancel:absent": 1}
    assert (cancels(spine), len(sends(spine))) == (2, 1)


OVERDUE = BURIED.replace("'p0', 'a0'", "'keyed', 'keyed'").replace("now() - n", "now() - interval '1 h' - n")
TURN = "SELECT floor(extract(epoch FROM statement_timestamp()) / 10)::bigint % 2"
ROOM = "SELECT idem.lane_capacity('keyed', 'keyed', 1, 1, false, 8)"
READ = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'idem.outbox'::regclass"


def test_what_nobody_asks_about_costs_a_lane_of_one_nothing(spine: Spine) -> None:
    """50,000 rows that have been due for an hour: whosever turn it is, a claim reads a handful of them."""
    with psycopg.connect(spine.url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(OVERDUE)
        turns: set[int] = set()
        for _ in range(60):
            with connection.transaction():
                connection.execute(ROOM)
                read = connection.execute(READ).fetchone()
            assert read and read[0] < 50, turns
            turns.update(connection.execute(TURN).fetchone() or ())
            if turns == {0, 1}:
                return
            time.sleep(0.5)
        raise AssertionError(f"only one side had its turn: {turns}")
