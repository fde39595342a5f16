"""Hazard 48: what a half-open lane tries first, where a payment that is cut off could not be sent again."""

import asyncio
from dataclasses import replace
from typing import Any

from fix_spine import KEYLESS, Spine
from fix_waiting import running, until

from idem.outbox.config.settings import WorkerSettings
from idem.outbox.values import clock
from idem.outbox.worker.worker import Worker
from idem.testing.bank import RequestMatch


def only(spine: Spine, name: str) -> Any:
    known = spine.catalogue
    return replace(known, operations={f"pay.{name}": known.operations[f"pay.{name}"]})


async def settled_once(spine: Spine, name: str) -> None:
    """Something that the provider is known to have, past its horizon."""
    await spine.sent("known", operation=f"pay.{name}")
    await spine.advance(KEYLESS.lookup.horizon + 1)


async def broken(spine: Spine, name: str) -> Worker:
    """A worker whose breaker is half-open: its calls were cut off, again and again."""
    worker = Worker(spine.database, only(spine, name), WorkerSettings(lease=30, margin=1, poll=0.05))
    lane = worker.lanes[0].lane
    for n in range(10):
        spine.accepted(f"k{n}", operation=f"pay.{name}")
    spine.bank.script(RequestMatch(account=name), ["act_then_drop"] * 10)
    assert (await worker.run_once()).claimed == 10
    assert lane.room() == 0
    await asyncio.sleep(lane.breaker.wait(clock.boottime()) + 0.01)
    for n in range(3):
        spine.accepted(f"next{n}", operation=f"pay.{name}")
    return worker


async def one_step(worker: Worker, spine: Spine, enough: int) -> list[str]:
    """The methods of the first calls that a running worker makes now."""
    before = len(spine.bank.log.requests)
    async with running(worker):
        await until(lambda: len(spine.bank.log.requests) >= before + enough, seconds=15)
    return [each.method for each in spine.bank.log.requests[before:]]


async def test_a_provider_without_keys_is_asked_before_it_is_paid(spine: Spine) -> None:
    await settled_once(spine, "keyless")
    worker = await broken(spine, "keyless")
    assert (await one_step(worker, spine, 4))[:4] == ["GET", "POST", "POST", "POST"]


async def test_a_question_that_fails_keeps_the_queue_where_it_is(spine: Spine) -> None:
    await settled_once(spine, "keyless")
    worker = await broken(spine, "keyless")
    spine.bank.script(RequestMatch(account="keyless", method="GET"), ["drop_before_acting"] * 3)
    assert set(await one_step(worker, spine, 1)) == {"GET"}
    assert worker.lanes[0].lane.room() == 0
    rows = await spine.all("SELECT status FROM idem.outbox o JOIN idem.intents i ON i.id = o.intent_id"
                           " WHERE i.idempotency_key LIKE 'next%%'")  # fmt: skip
    assert [row["status"] for row in rows] == ["pending"] * 3


async def test_a_provider_that_replays_is_tried_with_the_queue(spine: Spine) -> None:
    """Whatever becomes of that call, the same bytes settle it."""
    await settled_once(spine, "keyed")
    worker = await broken(spine, "keyed")
    assert set(await one_step(worker, spine, 3)) == {"POST"}


async def test_where_nothing_is_known_to_exist_the_queue_is_tried(spine: Spine) -> None:
    worker = await broken(spine, "keyless")
    assert (await one_step(worker, spine, 3))[0] == "POST"


async def test_paused_look_ups_are_not_made_for_it(spine: Spine, pause: Any) -> None:
    await settled_once(spine, "keyless")
    worker = await broken(spine, "keyless")
    await pause("lookups", provider="keyless")
    assert "GET" not in await one_step(worker, spine, 3)


async def test_refused_credentials_are_tried_with_a_row_because_a_look_says_nothing_about_them(spine: Spine) -> None:
    await settled_once(spine, "keyless")
    worker = Worker(spine.database, only(spine, "keyless"), WorkerSettings(lease=30, margin=1, poll=0.05))
    for n in range(5):
        spine.accepted(f"k{n}", operation="pay.keyless")
    spine.bank.script(RequestMatch(account="keyless"), ["401"] * 5)
    await worker.run_once()
    lane = worker.lanes[0].lane
    assert lane.room() == 0
    await asyncio.sleep(lane.breaker.wait(clock.boottime()) + 0.01)
    await spine.advance(3600)
    spine.accepted("next", operation="pay.keyless")
    assert (await one_step(worker, spine, 2))[:2] == ["GET", "POST"]
    assert lane.breaker.closings == 1
