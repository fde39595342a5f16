"""What is unsettled is told by provider and account, in series that the configuration alone makes."""

import asyncio
from typing import Any
from uuid import uuid4

from fix_desk import Desk
from prometheus_client import REGISTRY

from idem.outbox.operator import ages
from idem.outbox.worker.worker import Worker

KNOWN = [("keyed", "keyed"), ("keyless", "keyless")]


def gauge(name: str, lane: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"provider": lane, "account": lane, **labels})


async def report(desk: Desk) -> None:
    await desk.spine.run(ages.report, KNOWN)


async def test_ages_letters_and_windows_say_of_which_lane_they_are(desk: Desk) -> None:
    await desk.unknown("u")
    await desk.held("h")
    await report(desk)
    assert gauge("idem_unsettled", "keyed", what="unknown") == 1
    assert gauge("idem_unsettled", "keyless", what="unknown") == 0
    assert (gauge("idem_oldest_age_seconds", "keyed", what="unknown") or 0) >= 199
    assert gauge("idem_dead_letters_open", "keyed", reason="rejected") == 1
    assert gauge("idem_dead_letters_open", "keyless", reason="rejected") == 0
    left = gauge("idem_replay_window_left_seconds", "keyed", what="unknown")
    assert left is not None and 0 < left < 86400
    assert gauge("idem_replay_window_left_seconds", "keyless", what="unknown") == float("inf")


async def test_what_is_gone_goes_to_zero_and_foreign_names_make_no_series(desk: Desk) -> None:
    await desk.held("h")
    await report(desk)
    await desk.spine.all(
        "UPDATE idem.dead_letters SET resolved_at = now(), resolution = 'x', resolved_by = 'x' RETURNING 1"
    )
    await desk.spine.forced("UPDATE idem.outbox SET provider = %(p)s, account = %(p)s", p="from-elsewhere")
    await report(desk)
    assert gauge("idem_dead_letters_open", "keyed", reason="rejected") == 0
    assert gauge("idem_unsettled", "keyed", what="held") == 0
    assert gauge("idem_unsettled", "other", what="held") == 1
    assert gauge("idem_unsettled", "from-elsewhere", what="held") is None


async def test_status_shows_rate_breaker_and_what_to_type_next(desk: Desk) -> None:
    await desk.completed("done")
    await desk.unknown("u")
    worker = Worker(desk.spine.database, desk.spine.catalogue, desk.spine.settings)
    lane = next(each for each in worker.lanes if each.name.provider == "keyed")
    for _ in range(20):
        await asyncio.sleep(0)
        fail(lane.lane.breaker)
    await desk.spine.run(worker.life.beat)
    found = (await desk.cli("status", "--json")).data
    (row,) = [each for each in found["lanes"] if each["provider"] == "keyed"]
    assert row["breakers_open"] == 1
    text = (await desk.cli("status")).out
    for words in ("open in 1 worker", "next  idem doctor", "idem unknowns list"):
        assert words in text, text
    await worker.close()


def fail(breaker: Any) -> None:
    from idem.outbox.domain.outcomes import NotExecuted
    from idem.outbox.values import clock

    now, row = clock.boottime(), uuid4()
    if breaker.may_call(row, now):
        breaker.record(row, NotExecuted("transport"), now)
