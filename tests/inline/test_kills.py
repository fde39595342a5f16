"""Callers that die or stand still: one effect, or one more that somebody is told of, and never another answer."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any
from uuid import UUID

import pytest
from fix_spine import Spine
from fix_waiting import until
from inline import caller
from inline.buying import Shop

from idem.decisions import InProgress, Replay, Unknown
from idem.outbox.inline import InlineRun

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["inline.caller"])
pytestmark = pytest.mark.timeout(90)


class Caller:
    """A caller in another process."""

    def __init__(self, spine: Spine, provider: str, lease: float = 30.0) -> None:
        self.pipe: Connection
        self.pipe, theirs = processes.Pipe()
        self.process = processes.Process(
            target=caller.run, args=(theirs, spine.url, spine.bank.url, provider, lease), daemon=True
        )
        self.process.start()
        theirs.close()

    async def hear(self) -> Any:
        assert await asyncio.to_thread(self.pipe.poll, 30), "it says nothing"
        return self.pipe.recv()

    async def tell(self, order: str) -> Any:
        self.pipe.send(order)
        return await self.hear()

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join(90)
        assert self.process.exitcode == -signal.SIGKILL

    async def end(self) -> None:
        self.pipe.send("end")
        await asyncio.to_thread(self.process.join, 90)
        assert self.process.exitcode == 0

    def close(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(90)


@pytest.fixture
def callers(spine: Spine, shop: Shop) -> Iterator[Any]:
    made: list[Caller] = []

    def call(provider: str = "keyed", lease: float = 30.0) -> Caller:
        made.append(Caller(spine, provider, lease))
        return made[-1]

    yield call
    for each in made:
        each.close()


async def intent_of(spine: Spine) -> UUID:
    return UUID(str((await spine.one("SELECT id FROM idem.intents"))["id"]))


@pytest.mark.parametrize("provider", ["keyed", "keyless"])
@pytest.mark.parametrize("point", ["before the call", "after the call"])
async def test_a_killed_caller_leaves_one_effect(shop: Shop, callers: Any, point: str, provider: str) -> None:
    """IB-021, IB-027: after its call nobody calls again; before it its client does, once that is proven."""
    operation = f"buy.{provider}"
    one = callers(provider)
    assert await one.hear() == 1
    if point == "after the call":
        await one.tell("pay")
    one.kill()
    intent = await intent_of(shop.spine)
    assert isinstance(await shop.begin(operation=operation), InProgress)
    await shop.lose()
    assert isinstance(await shop.begin(operation=operation), Unknown), "accept sees it before the sweeper does"
    assert (await shop.sweep()).to_unknown == 1
    if point == "after the call":
        assert await shop.settle(intent, "completed") == "completed"
    else:
        assert await shop.settle(intent, "failed_retryable") == "failed_retryable"
        again = await shop.run(operation=operation)
        assert await again.complete(await shop.pay(again, provider)) == "settled"
    assert isinstance(await shop.begin(operation=operation), Replay)
    assert shop.spine.effects() == 1
    assert await shop.spine.letters(intent) == []


async def quiet(shop: Shop, intent: UUID) -> float:
    """Seconds for which nobody asks about it."""
    left = "SELECT extract(epoch FROM quiet_after - statement_timestamp())::float8 FROM idem.outbox"
    return await shop.spine.value(f"{left} WHERE intent_id = %(i)s", i=intent)


async def both_are_known(shop: Shop) -> bool:
    return len(await shop.spine.all("SELECT FROM idem.daemons WHERE kind = 'inline'")) == 2


@pytest.mark.quick
async def test_ib_018_the_next_process_does_not_vouch_for_the_dead_one(shop: Shop, callers: Any) -> None:
    """Its heartbeats are of another name, so the claim ends with its lease, and a pause is allowed for."""
    dead = callers()
    await dead.hear()
    dead.kill()
    await shop.begin("another")  # the same program, started again
    await until(lambda: both_are_known(shop), every=0.1)
    intent = UUID(str((await shop.spine.one("SELECT id FROM idem.intents WHERE idempotency_key = 'k1'"))["id"]))
    await shop.spine.execute(
        "UPDATE idem.outbox SET claimed_until = statement_timestamp() - interval '1 ms' WHERE intent_id = %s",
        (intent,),
    )
    assert (await shop.sweep()).to_unknown == 1
    assert await quiet(shop, intent) > 60 + 100, "flight limit and pause allowance"


@pytest.mark.quick
async def test_hazard_54_a_caller_that_lives_and_has_let_go_is_known_to_be_done(shop: Shop) -> None:
    run = await shop.run()
    await shop.lose(run)
    shop.runs._context.holds.clear()
    for _ in range(120):
        beat = await shop.spine.one(
            "SELECT count(*) AS n FROM idem.daemons d, idem.outbox o"
            " WHERE d.id = o.claimed_by AND d.seen_at > o.claimed_until AND NOT o.claim_token = ANY (d.tokens)"
        )
        if beat["n"]:
            break
        await asyncio.sleep(0.1)
    assert (await shop.sweep()).to_unknown == 1
    assert await quiet(shop, run.intent_id) < 61, "the flight limit alone"


async def test_a_caller_that_was_stopped_for_longer_than_its_lease_knows_that_it_lost(shop: Shop, callers: Any) -> None:
    """Hazard 1: what `remaining` is for. In real time, with real renewals before and after."""
    one = callers("keyed", lease=3.0)
    await one.hear()
    left, lost = await one.tell("check")
    assert 0 < left <= 3 and not lost
    one.signal(signal.SIGSTOP)
    await until(lambda: shop.is_swept(), seconds=20, every=0.2)
    one.signal(signal.SIGCONT)
    assert await one.tell("check") == (0.0, True)
    await one.end()
    assert shop.spine.effects() == 0


async def stopped_swept_and_taken_up(shop: Shop, one: Caller) -> tuple[UUID, InlineRun]:
    """A stands still before its call; swept, asked about, proven absent; its client's retry comes to B."""
    await one.hear()
    one.signal(signal.SIGSTOP)
    intent = await intent_of(shop.spine)
    await shop.lose()
    assert (await shop.sweep()).to_unknown == 1
    assert await shop.settle(intent, "failed_retryable")
    second = await shop.run(operation="buy.keyless")
    assert second.attempt == 2
    return intent, second


@pytest.mark.quick
async def test_hazard_11_a_caller_that_wakes_after_completion_changes_no_answer(shop: Shop, callers: Any) -> None:
    """A provider that knows no keys, a caller that does not look at `remaining`: two effects, and somebody hears."""
    one = callers("keyless")
    intent, second = await stopped_swept_and_taken_up(shop, one)
    assert await second.complete(await shop.pay(second, "keyless")) == "settled"
    before = await shop.begin(operation="buy.keyless")
    assert isinstance(before, Replay)
    one.signal(signal.SIGCONT)
    reference = await one.tell("pay")
    assert await one.tell("complete") == "late_proof"
    await one.end()
    assert await shop.begin(operation="buy.keyless") == before
    assert await shop.spine.letters(intent) == ["possible_duplicate"]
    assert reference in str((await shop.spine.one("SELECT details FROM idem.dead_letters"))["details"])
    assert len(await shop.ends(intent)) == 2


async def test_hazard_11_a_caller_that_wakes_as_another_holds_the_key_takes_nothing(shop: Shop, callers: Any) -> None:
    one = callers("keyless")
    intent, second = await stopped_swept_and_taken_up(shop, one)
    outcome = await shop.pay(second, "keyless")
    one.signal(signal.SIGCONT)
    await one.tell("pay")
    assert await one.tell("complete") == "late_proof"
    await one.end()
    # Stored, because the claim of B is live: A's answer is not B's, and B may still report.
    row = await shop.spine.row(intent)
    assert row is not None and (row["status"], row["attempt"]) == ("claimed", 2)
    assert second.remaining > 0 and await second.renew()
    assert await second.complete(outcome) == "folded"
    assert await shop.spine.letters(intent) == ["possible_duplicate"]
    assert (await shop.spine.key(intent))["state"] == "unknown", "nothing is answered while two proofs disagree"


@pytest.mark.quick
async def test_hazard_11_the_same_object_twice_is_no_contradiction(shop: Shop, callers: Any) -> None:
    """The provider knew the key that both sent."""
    one = callers("keyed")
    await one.hear()
    await one.tell("pay")
    one.signal(signal.SIGSTOP)
    intent = await intent_of(shop.spine)
    await shop.lose()
    assert (await shop.sweep()).to_unknown == 1
    assert await shop.settle(intent, "completed")
    before = await shop.begin()
    one.signal(signal.SIGCONT)
    assert await one.tell("complete") == "late_proof"
    await one.end()
    assert await shop.begin() == before
    assert await shop.spine.letters(intent) == []
    assert shop.spine.effects() == 1


async def test_a_clean_end_of_the_process_is_on_record(shop: Shop, callers: Any) -> None:
    with closing(callers()) as one:
        await one.hear()
        await one.tell("pay")
        await one.tell("complete")
        await one.end()
    row = await shop.spine.one("SELECT ended_how, tokens FROM idem.daemons WHERE kind = 'inline'")
    assert row == {"ended_how": "clean", "tokens": []}
    assert isinstance(await shop.begin(), Replay)
