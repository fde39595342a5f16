"""Workers as processes of their own: the order holds while many accept, and when the worker at the head is killed."""

import asyncio
import itertools
import os
import signal
import threading
from collections import defaultdict

import fix_kept
import kill_worker
import pytest
from fix_forking import started
from fix_spine import Spine
from fix_sql import engine_of
from fix_waiting import running, until

from idem.decisions import Accepted
from idem.sweeper.daemon import Sweeper

ACCEPTORS, EACH, ORDERS = 8, 6, 3
NUMBER = "SELECT ordering_number FROM idem.outbox WHERE intent_id = %s"
KEYS = "SELECT intent_id, provider_key::text AS key FROM idem.requests"


@pytest.mark.quick
@pytest.mark.timeout(180)
async def test_two_workers_keep_the_order_in_which_eight_sessions_commit(spine: Spine) -> None:
    placed: list[tuple[int, int, object]] = []
    failed: list[BaseException] = []

    def accept(number: int) -> None:
        try:
            with fix_kept.engine(spine.url).connect() as connection:
                for n in range(EACH):
                    order = (number + n) % ORDERS
                    with connection.begin():
                        decided = spine.acceptor.accept(
                            connection,
                            "t",
                            "pay.keyed",
                            f"{number}-{n}",
                            {"amount": 100 + order},
                            ordering_key=str(order),
                        )
                        assert isinstance(decided, Accepted)
                        (place,) = connection.exec_driver_sql(NUMBER, (decided.intent_id,)).one()
                    placed.append((order, place, decided.intent_id))
        except BaseException as error:  # told by the test
            failed.append(error)

    with engine_of(spine.url).connect() as connection:
        spine.acceptor.know(connection)
    workers = [started(kill_worker.run, spine.url, spine.bank.url, kill_worker.patient) for _ in range(2)]
    threads = [threading.Thread(target=accept, args=(number,)) for number in range(ACCEPTORS)]
    try:
        async with running(Sweeper(spine.database, spine.catalogue)):
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            await until(lambda: spine.lacks("FROM idem.outbox"), "every row settled", 90)
    finally:
        for worker in workers:
            worker.terminate()
            await asyncio.to_thread(worker.join, 30)
    assert not failed
    keys = {row["intent_id"]: row["key"] for row in await spine.all(KEYS)}
    wanted = defaultdict(list)
    for order, _, intent in sorted(placed, key=lambda one: one[1]):
        wanted[order].append(keys[intent])
    sends = spine.bank.log.sends()
    assert len(sends) == ACCEPTORS * EACH == spine.effects()
    of_key = {key: order for order, mine in wanted.items() for key in mine}
    for order, mine in wanted.items():
        made = [each for each in sends if of_key[str(each.key)] == order]
        assert [str(each.key) for each in made] == mine
        for earlier, later in itertools.pairwise(made):
            assert earlier.answered_at is not None and earlier.answered_at <= later.at, "one at a time"


@pytest.mark.quick
@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", ["received", "acted"])
async def test_a_worker_that_is_killed_at_the_head_lets_no_follower_pass(spine: Spine, point: str) -> None:
    intents = [spine.accepted(f"k{n}", 100 + n, ordering_key="o") for n in range(3)]
    pid: list[int] = []
    spine.bank.when(point, None, lambda _: os.kill(pid[0], signal.SIGKILL), times=1)  # type: ignore[arg-type]
    process = started(kill_worker.run, spine.url, spine.bank.url)
    pid.append(process.pid or 0)
    await asyncio.to_thread(process.join, 60)
    assert process.exitcode == -signal.SIGKILL
    for _ in range(2):
        assert [await spine.status(each) for each in intents] == ["claimed", "waiting", "waiting"]
        assert (await spine.work()).claimed == 0
        assert (await spine.sweep()).promoted == 0
    await spine.sweep(after=60)
    assert [await spine.status(each) for each in intents] == ["unknown", "waiting", "waiting"]
    assert (await spine.work()).claimed == 0
    await spine.reconcile(after=200)
    assert [await spine.status(each) for each in intents] == [None, "pending", "waiting"]
    await spine.work(times=2)
    assert spine.effects() == 3
    keys = {row["intent_id"]: row["key"] for row in await spine.all(KEYS)}
    made = list(dict.fromkeys(str(each.key) for each in spine.bank.log.sends()))
    assert made == [keys[each] for each in intents]
