"""The ride service: its worker is killed between every two statements, and every effect is there exactly once."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import layers
import psycopg
import pytest
from examples.town import IDEM, Town
from fix_line import target, through

from idem.outbox.database.session import connect
from idem.outbox.values.background_loop import BackgroundLoop
from idem.testing import stepping
from idem.testing.proxy import Direction, Proxy, ProxyAction

FILES = ("rides",)
EVENTS = False
ACCOUNT = {"name": "shop", "token": "sk_test_1", "api": "stripe"}
WORKER = (*IDEM, "worker", "run", "--app", "rides:idem")
MESSAGES = 75
"""More messages than a worker sends the database for one ride."""
RUNS = int(os.environ.get("IDEM_KILL_RUNS", "12" if layers.thorough() else "4"))
"""How many of the places before and after a message are tried: 150 are all of them."""


@pytest.fixture(scope="module")
def service(town: Town) -> Iterator[httpx.Client]:
    town.environment |= {"STRIPE_SECRET_KEY": "sk_test_1", "PYTHONWARNINGS": "ignore"}
    town.run(sys.executable, "app.py")
    town.serve(sys.executable, "-m", "uvicorn", "app:app", "--port", str(town.port), "--log-level", "warning")
    with httpx.Client(base_url=town.address, timeout=60) as client:
        yield client


def take(service: httpx.Client, key: str, rider: int = 1, **headers: str) -> httpx.Response:
    body = {"rider": rider, "origin": "here", "destination": "there"}
    return service.post("/rides", json=body, headers={"Idempotency-Key": key} | headers)


def answered(town: Town, service: httpx.Client, key: str, rider: int = 1) -> httpx.Response:
    """The answer, as a client gets it who asks until there is one."""
    told: list[httpx.Response] = []

    def answers() -> bool:
        told.append(take(service, key, rider))
        return told[-1].status_code != 202

    town.wait(answers)
    return told[-1]


def mails(town: Town) -> list[dict[str, Any]]:
    file = town.folder / "mails.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def charges(town: Town) -> list[Any]:
    return [each for each in town.bank.stripe_objects("payment_intent") if each["status"] == "succeeded"]


def phases(town: Town, key: str) -> list[tuple[Any, ...]]:
    return town.rows(f"SELECT phase, outcome FROM ride_phases WHERE request = '{key}' ORDER BY id")


@contextmanager
def daemons(town: Town) -> Iterator[None]:
    """`idem run --no-api --app rides:idem`, as the example says it."""
    process = town.start(*IDEM, "run", "--no-api", "--app", "rides:idem")
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ended(town: Town, key: str) -> None:
    """Wait until the whole ride is done, and each of its steps was told."""
    town.until(
        "SELECT n.state = 'completed' AND NOT EXISTS (SELECT FROM idem.handler_work w WHERE w.intent_id = n.id)"
        "  FROM idem.intents n WHERE n.idempotency_key = %s", key,
    )  # fmt: skip


ALL = [("book", "succeeded"), ("charge", "succeeded"), ("paid", "succeeded"), ("receipt", "succeeded")]


def test_a_ride_is_booked_charged_and_mailed_and_a_retry_gets_the_same_answer(
    town: Town, service: httpx.Client
) -> None:
    with daemons(town):
        first = answered(town, service, "r1")
        assert first.status_code == 201, first.text + town.said()
        again = take(service, "r1")
        assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
        ended(town, "r1")
    ((state, payment),) = town.rows("SELECT state, payment FROM rides")
    assert (state, payment) == ("paid", first.json()["payment"]) == ("paid", charges(town)[0]["id"])
    assert [(mail["to"], mail["ride"]) for mail in mails(town)] == [("ann@example.com", first.json()["ride"])]
    assert phases(town, "r1") == ALL


def test_a_refused_card_cancels_the_ride(town: Town, service: httpx.Client) -> None:
    sent = len(mails(town))
    with daemons(town):
        refused = answered(town, service, "r2", rider=2)
        assert refused.status_code == 402, refused.text + town.said()
        assert take(service, "r2", rider=2).content == refused.content
        ended(town, "r2")
    assert town.rows("SELECT state FROM rides WHERE rider = 2") == [("cancelled",)]
    assert phases(town, "r2") == [("book", "succeeded"), ("charge", "refused"), ("cancel", "succeeded")]
    assert len(mails(town)) == sent


def test_a_rider_that_is_not_there_is_an_answer_too(town: Town, service: httpx.Client) -> None:
    with daemons(town):
        nobody = answered(town, service, "r3", rider=99)
        assert nobody.status_code == 422, nobody.text + town.said()
        assert take(service, "r3", rider=99).content == nobody.content
    assert town.rows("SELECT count(*) FROM rides WHERE rider = 99") == [(0,)]


class Killer:
    """Kills a process before or after its n-th message to the database, counted from when it is told the process."""

    def __init__(self) -> None:
        self.at = 0
        self.after = False
        self.seen = 0
        self.process: subprocess.Popen[str] | None = None

    def arm(self, process: subprocess.Popen[str], at: int, *, after: bool) -> None:
        self.seen, self.at, self.after, self.process = 0, at, after, process

    def _kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process = None

    def before(self, _number: int, direction: Direction, _data: bytes) -> ProxyAction:
        if direction == "to_server" and self.process is not None:
            self.seen += 1
            if self.seen == self.at and not self.after:
                self._kill()
                return "cut"
        return "pass"

    def behind(self, _number: int, direction: Direction, _data: bytes) -> ProxyAction:
        if direction == "to_server" and self.after and self.seen >= self.at:
            self._kill()
        return "pass"


def later(town: Town, seconds: float) -> None:
    """Let the time pass that a killed process's leases and what it may have sent need. No daemon lives now."""

    async def step() -> None:
        connection = await connect(town.url, name="test-clock")
        async with connection:
            await stepping.advance(connection, seconds)

    asyncio.run(step())


@pytest.mark.own_sessions
@pytest.mark.timeout(180 + 60 * RUNS)
def test_a_worker_killed_between_any_two_statements_does_everything_once(town: Town, service: httpx.Client) -> None:
    dice = random.Random(int(os.environ.get("IDEM_SEED", "7")))
    places = [(at, after) for at in range(1, MESSAGES + 1) for after in (False, True)]
    killer, loop, killed = Killer(), BackgroundLoop("proxy"), 0
    proxy = Proxy(target(town.url), killer.before, killer.behind)
    loop.call(proxy.listen())
    try:
        for run, (at, after) in enumerate(dice.sample(places, min(RUNS, len(places)))):
            key, before = f"k{run}", (len(charges(town)), len(mails(town)))
            rides = len(town.rows("SELECT FROM rides"))
            environment = town.environment | {"IDEM_DATABASE_URL": through(town.url, proxy)}
            with psycopg.connect(town.url, autocommit=True) as look:
                known = look.execute("SELECT count(*) FROM idem.daemons").fetchone()
            town.environment, usual = environment, town.environment
            victim = town.start(*WORKER)
            town.environment = usual
            assert known is not None
            town.until("SELECT count(*) > %s FROM idem.daemons", known[0], process=victim)
            killer.arm(victim, at, after=after)
            asking = threading.Thread(target=take, args=(service, key), kwargs={"Prefer": "wait=1"})
            asking.start()
            town.wait(
                lambda v=victim, k=key: v.poll() is not None or bool(  # type: ignore[misc]
                    town.rows(f"SELECT FROM idem.intents WHERE idempotency_key = '{k}' AND state = 'completed'"))
            )  # fmt: skip
            killed += victim.poll() is not None
            victim.kill()
            victim.wait(30)
            asking.join(60)
            later(town, 4000)
            with daemons(town):
                ended(town, key)
                told = take(service, key)
            where = (at, after, town.said())
            assert told.status_code == 201, where
            assert (len(charges(town)), len(mails(town))) == (before[0] + 1, before[1] + 1), where
            assert len(town.rows("SELECT FROM rides")) == rides + 1, where
            found = town.rows(f"SELECT state, payment FROM rides WHERE id = {told.json()['ride']}")
            assert found == [("paid", told.json()["payment"])], where
            assert phases(town, key) == ALL, where
        assert killed >= RUNS / 3
        assert town.rows("SELECT FROM idem.dead_letters WHERE resolved_at IS NULL") == []
    finally:
        loop.call(proxy.stop())
        loop.close()
