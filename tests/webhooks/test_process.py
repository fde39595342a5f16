"""`idem webhooks run` as a process: it says what it takes, is killed in the middle, and ends with exit code 0."""

import asyncio
import contextlib
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fix_desk import Desk, run
from fix_processes import listening
from fix_waiting import until
from fix_webhooks import FIRST, Hooks, event

WEBHOOK = """
[providers.keyed.webhook]
key = "/data/idempotency_key"
secrets = [{ env = "HOOK" }]
"""


@pytest.fixture
def configured(desk: Desk, configuration: Path) -> Desk:
    """The desk's own file, with webhooks in it."""
    configuration.write_text(configuration.read_text() + WEBHOOK)
    desk.environment["HOOK"] = FIRST
    return desk


@contextlib.asynccontextmanager
async def process(desk: Desk, *options: str) -> AsyncIterator[tuple[Process, Hooks, list[str]]]:
    """The command, once it listens; what it said until then."""
    async with listening(desk.environment, "webhooks", *options) as (running, http, said):
        yield running, Hooks(desk, str(http.base_url).rstrip("/"), http), said


async def test_it_takes_events_and_ends_with_0_on_sigterm(configured: Desk) -> None:
    intent = await configured.unknown("k")
    async with process(configured, "--log", "json") as (running, hooks, said):
        assert any("events of keyed/keyed: /webhooks/keyed/keyed, 1 secret" in line for line in said)
        assert (await hooks.http.get("/healthz")).json() == {"alive": True}
        assert await hooks.fate(event(await hooks.key(intent))) == "applied"
        assert await configured.alive("webhooks")
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        rest = (await asyncio.wait_for(running.stderr.read(), 30)).decode()
        assert await asyncio.wait_for(running.wait(), 30) == 0
    assert '"event": "webhook"' in rest
    assert FIRST not in rest and "pay_1" not in rest and await hooks.key(intent) not in rest
    ended = await configured.spine.one("SELECT ended_how FROM idem.daemons WHERE kind = 'webhooks'")
    assert ended["ended_how"] == "clean"
    assert await configured.state(intent) == ("completed", None)


@pytest.fixture
def unsigned(configured: Desk, configuration: Path) -> Desk:
    """The same, and no secret."""
    configuration.write_text(configuration.read_text().replace('secrets = [{ env = "HOOK" }]', ""))
    return configured


async def test_ib_102_it_says_whose_events_it_refuses(unsigned: Desk) -> None:
    async with process(unsigned) as (_, hooks, said):
        assert any("events of keyed/keyed: refused" in line for line in said)
        assert (await hooks.send(event(None))).status_code == 503


async def test_a_wrong_secret_is_a_sentence_and_no_traceback(configured: Desk) -> None:
    result = await asyncio.to_thread(run, ["webhooks", "run"], configured.environment | {"HOOK": "v1,abc"})
    assert result.code == 2
    assert "providers.keyed.webhook.secrets.0" in result.err
    assert "Traceback" not in result.err and "v1,abc" not in result.err


SLOW = """
CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NULL; END $$;
CREATE TRIGGER slow AFTER INSERT ON idem.webhook_bodies FOR EACH ROW EXECUTE FUNCTION public.slow();
"""
ASLEEP = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"


@pytest.mark.quick
async def test_ib_115_killed_between_storing_and_applying_the_event_is_applied_once(configured: Desk) -> None:
    intent = await configured.unknown("k")
    spine = configured.spine
    await spine.execute(SLOW)
    async with process(configured) as (running, hooks, _):
        content = event(await hooks.key(intent))
        sending = asyncio.create_task(hooks.send(content))
        await until(lambda: spine.all(ASLEEP))
        assert not sending.done()
        running.kill()
        with pytest.raises(httpx.HTTPError):
            await sending
    await spine.execute("DROP TRIGGER slow ON idem.webhook_bodies")
    assert await spine.all("SELECT 1 FROM idem.webhook_events") == []
    assert await configured.state(intent) == ("unknown", "unknown")
    async with process(configured) as (_, hooks, _):
        assert await hooks.fate(content) == "applied"
        assert await hooks.fate(content) == "duplicate"
        assert await hooks.transitions(intent) == [
            ("worker", "in_progress", "unknown"),
            ("webhook", "unknown", "completed"),
        ]
