"""While the database is away one request of a process looks for it; the others fail at once, and nothing is written."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from fix_line import target, through
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from idem import Answer, Idem
from idem.application.install import answer_to
from idem.errors import StoreUnavailable
from idem.outbox.database import checkout
from idem.outbox.database.outage import AWAY, BELIEVED, Outage
from idem.outcomes import Succeeded
from idem.testing.proxy import Direction, Proxy, ProxyAction

THREADS = 16


class Watch:
    """`how`: what becomes of the bytes of a line. Black hole: they are lost, and the line stays open."""

    def __init__(self) -> None:
        self.how: ProxyAction = "pass"

    def __call__(self, _number: int, _direction: Direction, _data: bytes) -> ProxyAction:
        return self.how


def take(engine: Engine) -> object:
    """One request: a session that has not begun is given a connection by its engine. The error, or what it read."""
    with Session(engine) as session:
        try:
            return checkout.connection_of(session).scalar(text("SELECT 1"))
        except StoreUnavailable as error:
            return error


def test_of_many_threads_one_asks() -> None:
    outage = Outage()
    for _ in range(BELIEVED):
        outage.asked(outage.ask(), away=True)
    gate = threading.Barrier(THREADS)

    def ask() -> bool:
        gate.wait(30)
        return outage.ask() is not None

    with ThreadPoolExecutor(THREADS) as threads:
        asked = list(threads.map(lambda _: ask(), range(THREADS)))
    assert asked.count(True) == 1


def test_a_request_from_before_the_outage_ends_no_probe() -> None:
    outage = Outage()
    early = outage.ask()
    for _ in range(BELIEVED):
        outage.asked(outage.ask(), away=True)
    probe = outage.ask()
    assert probe is not None
    outage.asked(early, away=True)
    assert outage.ask() is None
    outage.asked(probe, away=None)  # its caller has gone: another may ask
    again = outage.ask()
    assert again is not None
    outage.asked(again, away=False)
    assert not outage.on


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["cut", "swallow"])
async def test_one_request_connects_and_the_others_fail_at_once(db_url: str, how: Literal["cut", "swallow"]) -> None:
    watch = Watch()
    async with Proxy(target(db_url), watch) as proxy:
        url = through(db_url, proxy).replace("postgresql://", "postgresql+psycopg://", 1)
        engine = create_engine(url, pool_size=THREADS, connect_args={"connect_timeout": 3})
        assert await asyncio.to_thread(take, engine) == 1
        await asyncio.to_thread(engine.dispose)
        watch.how = how
        for _ in range(BELIEVED):
            assert isinstance(await asyncio.to_thread(take, engine), StoreUnavailable)
        # One holds the right to ask, and hangs: no other makes a connection.
        probe = checkout.outage_of(engine).ask()
        before = proxy.connections
        with ThreadPoolExecutor(THREADS) as threads:
            loop = asyncio.get_running_loop()
            refused = await asyncio.gather(*(loop.run_in_executor(threads, take, engine) for _ in range(THREADS)))
        assert [str(each) for each in refused] == [AWAY] * THREADS
        assert proxy.connections == before
        answer = answer_to(StoreUnavailable(AWAY))
        assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1
        checkout.outage_of(engine).asked(probe, away=True)
        # Without that, one of all of them connects at a time.
        assert isinstance(await asyncio.to_thread(take, engine), StoreUnavailable)
        assert proxy.connections == before + 1
        watch.how = "pass"
        assert await asyncio.to_thread(take, engine) == 1
        assert not checkout.outage_of(engine).on
        engine.dispose()


@pytest.mark.timeout(240)
async def test_an_inline_call_begins_on_idems_own_line_behind_the_same_breaker(db_url: str, tmp_path: Path) -> None:
    watch = Watch()
    async with Proxy(target(db_url), watch) as proxy:
        (tmp_path / "idem.toml").write_text("environment = 'test'\n")
        house = Idem(tmp_path / "idem.toml", env={"IDEM_DATABASE_URL": through(db_url, proxy)})
        book = house.operation("labels.book", inline=True, answer=lambda o: Answer(201, {"label": o.reference}))

        def begin(key: str) -> bool | StoreUnavailable:
            try:
                with book.inline({"weight": 1}, key=key) as run:
                    run.complete(Succeeded("l-1"))
                    return run.mine
            except StoreUnavailable as error:
                return error

        try:
            assert await asyncio.to_thread(begin, "before") is True
            watch.how = "cut"
            for n in range(BELIEVED):
                assert isinstance(await asyncio.to_thread(begin, f"first-{n}"), StoreUnavailable)
            outage = house.background()._outage
            assert outage.on
            probe = outage.ask()  # another request is asking, and hangs
            with ThreadPoolExecutor(THREADS) as threads:
                loop = asyncio.get_running_loop()
                found = await asyncio.gather(*(loop.run_in_executor(threads, begin, f"k{n}") for n in range(THREADS)))
            assert [str(each) for each in found] == [AWAY] * THREADS
            outage.asked(probe, away=True)
            watch.how = "pass"
            async with asyncio.timeout(60):
                while await asyncio.to_thread(begin, "after") is not True:
                    await asyncio.sleep(0.1)
            assert await asyncio.to_thread(begin, "k0") is True
        finally:
            await asyncio.to_thread(house.close)
