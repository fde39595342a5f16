"""The same accept over every kind of caller, at every isolation level: it stands or falls with its transaction."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import pytest
from accept.shop import ANSWER, OPERATION, ORDER, Shop
from fix_sql import async_engine_of, engine_of
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from idem.decisions import Accepted, Decision, InProgress, Replay
from idem.errors import RetryTransaction

ISOLATION = pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
NONE = {"idem.intents": 0, "idem.idempotency_keys": 0, "idem.outbox": 0, "idem.requests": 0, "idem.evidence": 0,
        "public.orders": 0}  # fmt: skip
ONE = dict.fromkeys(NONE, 1)


class Work:
    """One open transaction of a caller, whatever it is made of."""

    def __init__(self, shop: Shop, on: Connection | Session | AsyncConnection | AsyncSession) -> None:
        self._shop = shop
        self._on = on

    async def accept(self, key: str = "k", amount: int = 100) -> Decision:
        params = {"amount": amount}
        if isinstance(self._on, Connection | Session):
            return self._shop.acceptor.accept(self._on, "t", OPERATION, key, params)
        return await self._shop.acceptor.accept_async(self._on, "t", OPERATION, key, params)

    async def run(self, statement: str) -> None:
        done: Any = self._on.execute(text(statement))
        if not isinstance(self._on, Connection | Session):
            await done

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        if isinstance(self._on, Connection | Session):
            with self._on.begin_nested():
                yield
        else:
            async with self._on.begin_nested():
                yield


Begin: TypeAlias = Callable[[], AbstractAsyncContextManager[Work]]


@pytest.fixture
def begin(shop: Shop, caller: str, isolation: str) -> Begin:
    """Opens a transaction of the caller, which commits at the end of its block."""
    kind, _, driver = caller.partition(" ")
    options = {"isolation_level": isolation}

    @asynccontextmanager
    async def opened() -> AsyncIterator[Work]:
        match kind:
            case "Connection":
                with engine_of(shop.url, **options).begin() as connection:
                    yield Work(shop, connection)
            case "Session":
                with Session(engine_of(shop.url, **options)) as session, session.begin():
                    yield Work(shop, session)
            case "AsyncConnection":
                async with async_engine_of(shop.url, driver, **options).begin() as connection:
                    yield Work(shop, connection)
            case _:
                async with AsyncSession(async_engine_of(shop.url, driver, **options)) as session, session.begin():
                    yield Work(shop, session)

    return opened


CALLERS = pytest.mark.parametrize(
    "caller",
    ["Connection", "Session", "AsyncConnection psycopg", "AsyncConnection asyncpg", "AsyncSession psycopg",
     "AsyncSession asyncpg"],
)  # fmt: skip


@CALLERS
@ISOLATION
async def test_intent_key_row_and_order_commit_together(shop: Shop, begin: Begin) -> None:
    async with begin() as work:
        await work.run(ORDER)
        decision = await work.accept()
        assert isinstance(decision, Accepted)
        assert isinstance(await work.accept(), InProgress)  # the caller's own, again, in one transaction
        assert shop.counts() == NONE
    assert shop.counts() == ONE
    shop.put(decision.intent_id, "completed")
    async with begin() as work:
        replay = await work.accept()
    assert isinstance(replay, Replay)
    assert (replay.intent_id, replay.answer.status, replay.answer.body) == (decision.intent_id, 201, ANSWER)
    assert replay.answer.headers == {"content-type": "application/json", "x-note": "1"}


@CALLERS
@ISOLATION
async def test_a_rollback_leaves_nothing_and_frees_the_key(shop: Shop, begin: Begin) -> None:
    """IB-128: an exception in the application leaves no key behind that is in progress for ever."""
    with pytest.raises(RuntimeError, match="of the application"):
        async with begin() as work:
            await work.accept()
            await work.run(ORDER)
            raise RuntimeError("of the application")
    assert shop.counts() == NONE
    async with begin() as work:
        assert isinstance(await work.accept(), Accepted)


@CALLERS
@ISOLATION
async def test_a_savepoint_that_is_rolled_back_takes_the_key_with_it(shop: Shop, begin: Begin) -> None:
    async with begin() as work:
        await work.run(ORDER)
        with pytest.raises(RuntimeError):
            async with work.savepoint():
                assert isinstance(await work.accept(), Accepted)
                raise RuntimeError
        async with work.savepoint():
            assert isinstance(await work.accept(), Accepted)
    assert shop.counts() == ONE


@CALLERS
@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("before", [None, "failed_retryable"])
async def test_hazard_23_a_winner_after_the_snapshot_is_retried(shop: Shop, begin: Begin, before: str | None) -> None:
    """The winner may be a new key or another retry of one at rest; the loser's transaction is run again, whole."""
    if before is not None:
        first = shop.once()
        assert isinstance(first, Accepted)
        shop.put(first.intent_id, before, "held")
    with pytest.raises(RetryTransaction):
        async with begin() as work:
            await work.run("SELECT count(*) FROM public.orders")
            shop.once()
            await work.accept()
    async with begin() as work:
        assert isinstance(await work.accept(), InProgress)
    assert shop.counts()["idem.outbox"] == 1
