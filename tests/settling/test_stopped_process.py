"""A process that is stopped (SIGSTOP) between the statement that allows a send and the first byte, until the provider
has forgotten the first one: when it goes on, nothing of it leaves."""

import asyncio
import contextlib
import os
import signal

import pytest
from fix_desk import Desk
from fix_line import target, through
from fix_processes import started
from fix_waiting import until
from settling.shop import sends

from idem.outcomes import Ambiguous
from idem.testing.proxy import Direction, Proxy, ProxyAction

PROMISED, SOON = 3600, 6.0
"""Seconds: what the provider promised of this row, and how much of it is left when a send is allowed."""
# `doubted_since` of a queued row that lost commits may have sent, `first_sent_at` of an unknown one. Set again until a
# daemon has the row, so that the memory is never over before.
REMEMBERED = """
UPDATE idem.outbox SET replay_window = %(promised)s, {moment} = statement_timestamp()
                                                              - make_interval(secs => %(promised)s - %(left)s::float8),
                       available_at = statement_timestamp() - interval '1 s'
 WHERE claim_token IS NULL RETURNING id
"""
HELD = """
SELECT idem.memory_left(first_sent_at, doubted_since, replay_window, NULL) AS memory_left,
       extract(epoch FROM claimed_until - statement_timestamp())::float8 AS lease_left
  FROM idem.outbox WHERE claim_token IS NOT NULL
"""


@pytest.mark.quick
@pytest.mark.timeout(180)
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
@pytest.mark.parametrize("forgotten", [True, False], ids=["forgotten", "remembered"])
@pytest.mark.parametrize(("daemon", "moment"), [("worker", "doubted_since"), ("reconciler", "first_sent_at")])
async def test_what_was_allowed_is_not_sent_when_the_process_goes_on_after_the_memory(
    desk: Desk, daemon: str, moment: str, forgotten: bool
) -> None:
    """The first send of a row that is doubted, and a replay; its lease still runs, so that alone keeps nothing back."""
    spine, stopped, process = desk.spine, asyncio.Event(), None

    def stop(_number: int, direction: Direction, data: bytes) -> ProxyAction:
        # The answer of the claim or the claim is the first one with the request in it. It is committed by then.
        if process is not None and direction == "to_client" and b"/payments" in data and not stopped.is_set():
            os.kill(process.pid, signal.SIGSTOP)
            stopped.set()
        return "pass"

    async def allowed() -> bool:
        if not stopped.is_set():
            left = SOON if forgotten else PROMISED / 2
            await spine.all(REMEMBERED.format(moment=moment), promised=PROMISED, left=left)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), 1)
        return stopped.is_set() and bool(await spine.all(HELD))

    async def over() -> bool:
        return bool((await spine.one(HELD))["memory_left"] < 0)

    async def left_alone() -> bool:
        return not await spine.all(HELD)

    if daemon == "worker":
        await desk.pending("k1")
    else:
        await desk.after("k1", Ambiguous())
    async with Proxy(target(spine.url), stop) as database:
        environment = desk.environment | {
            "IDEM_DATABASE_URL": through(spine.url, database),
            "IDEM_WORKER_LEASE": "10m", "IDEM_RECONCILER_LEASE": "10m",
        }  # fmt: skip
        async with started(daemon, "run", env=environment) as process:
            await until(allowed, "the statement that allows the send", seconds=120)
            assert sends(spine) == []
            if forgotten:
                await until(over, "the end of the memory")
            assert (await spine.one(HELD))["lease_left"] > 60
            process.send_signal(signal.SIGCONT)
            await until(left_alone, "the end of the claim")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0
    assert len(sends(spine)) == (0 if forgotten else 1)
