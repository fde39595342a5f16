"""A handler runs once for each event, in one transaction with its mark, whatever it is given to write with."""

import functools
import uuid
from typing import Any

import pytest
from fix_spine import Spine
from handlers.conftest import WRITE, House, words
from pydantic import BaseModel
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from idem import Settled
from idem.decisions import Accepted
from idem.errors import ConfigError
from idem.outbox.handlers.handler import handler
from idem.outbox.handlers.runner import HandlerRunner


class Pay(BaseModel):
    amount: int


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"schema": "public"}  # noqa: RUF012
    intent: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    handler: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    said: Mapped[str]


def by_session(db: Session, settled: Settled[Any]) -> None:
    # Not flushed by the handler: what it has added is written with the mark all the same.
    db.add(Order(**words("by_session", settled)))


def by_connection(db: Connection, settled: Settled[Any]) -> None:
    db.execute(text(WRITE), words("by_connection", settled))


async def by_async_session(db: AsyncSession, settled: Settled[Any]) -> None:
    db.add(Order(**words("by_async_session", settled)))


async def by_async_connection(db: AsyncConnection, settled: Settled[Any]) -> None:
    await db.execute(text(WRITE), words("by_async_connection", settled))


def unnamed(db, settled):  # type: ignore[no-untyped-def]
    assert type(db) is Session
    db.execute(text(WRITE), words("unnamed", settled))


ALL = (by_session, by_connection, by_async_session, by_async_connection, unnamed)


async def test_every_kind_of_handler_hears_of_every_event_once(house: House) -> None:
    async with house.runner(house.handlers(*ALL)) as runner:
        await runner.run_once()
        first, second = house.intent("completed"), house.intent("rested", "corrected")
        house.intent("completed", operation="ship")
        assert await runner.run_once() == 3 * len(ALL)
        assert await runner.run_once() == 0
    assert sorted(house.orders(first)) == sorted((each.__name__, 1) for each in ALL)
    assert sorted(house.orders(second)) == sorted((each.__name__, n) for each in ALL for n in (1, 2))
    assert house.marks() == 3 * len(ALL)
    assert house.waiting() == []


async def test_a_handler_is_told_what_settled(spine: Spine) -> None:
    heard: list[Settled[Pay]] = []

    def hear(db: Session, settled: Settled[Pay]) -> None:
        heard.append(settled)

    known = handler("pay.keyed", hear, Pay)
    runner = HandlerRunner(spine.url, {known.name: known})
    await runner.run_once()
    intent = await spine.sent("k1", 4711)
    assert await runner.run_once() == 1
    await runner.close()
    (told,) = heard
    assert (told.intent, told.tenant, told.operation, told.key) == (intent, "t", "pay.keyed", "k1")
    assert (told.event, told.number, told.state, told.outcome) == ("completed", 1, "completed", "succeeded")
    assert told.succeeded and told.params == Pay(amount=4711) and told.fields["amount"] == 4711
    row = await spine.one("SELECT provider_reference FROM idem.intents")
    assert told.reference == row["provider_reference"] is not None
    assert told.reference is not None and told.answer is not None and told.answer.status == 201
    assert told.reference.encode() in told.answer.body


async def test_what_a_handler_accepts_is_accepted_with_its_mark_or_not_at_all(spine: Spine) -> None:
    fails = True

    def order_it(db: Session, settled: Settled[Any]) -> None:
        if settled.operation != "pay.keyed":
            return
        decision = spine.acceptor.accept(db, settled.tenant, "pay.keyless", f"after-{settled.intent}", {"amount": 5})
        assert isinstance(decision, Accepted)
        if fails:
            raise RuntimeError("not today")

    known = handler("pay.keyed", order_it)
    runner = HandlerRunner(spine.url, {known.name: known})
    await runner.run_once()
    await spine.sent()
    assert await runner.run_once() == 0
    counted = "SELECT count(*) AS n FROM idem.intents WHERE operation = 'pay.keyless'"
    assert (await spine.one(counted))["n"] == 0
    fails = False
    await spine.all("UPDATE idem.handler_work SET due_at = now() RETURNING 1")
    assert await runner.run_once() == 1
    await runner.close()
    assert (await spine.one(counted))["n"] == 1
    assert await spine.works() == 2


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
async def test_isolation_search_path_and_timeouts_are_the_runner_s_own(house: House, isolation: str) -> None:
    """Hazard 43: whatever the role's defaults are; and what one handler sets, the next does not find."""
    seen: list[dict[str, str]] = []
    names = ("transaction_isolation", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
             "search_path", "application_name", "work_mem")  # fmt: skip

    def look(db: Connection, settled: Settled[Any]) -> None:
        seen.append({name: db.execute(text(f"SHOW {name}")).scalar_one() for name in names})
        db.execute(text("SET search_path TO nowhere"))
        db.execute(text("SET work_mem TO '99MB'"))
        db.execute(text("CREATE TEMPORARY TABLE mine (a integer)"))

    name = house.run("SELECT current_database()::text AS name")[0]["name"]
    house.run(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    house.run(f"ALTER DATABASE {name} SET statement_timeout = 0")
    house.run(f"ALTER DATABASE {name} SET search_path = public, idem")
    async with house.runner(house.handlers(look), limit=7, threads=1) as runner:
        await runner.run_once()
        house.intent("completed")
        house.intent("completed")
        assert await runner.run_once() == 2
    assert seen[0] == seen[1]
    assert seen[0] == {
        "transaction_isolation": "read committed", "statement_timeout": "7s", "lock_timeout": "3500ms",
        "idle_in_transaction_session_timeout": "7s", "search_path": "public, idem",
        "application_name": "idem-handlers", "work_mem": seen[0]["work_mem"],
    }  # fmt: skip


def test_a_function_that_cannot_be_a_handler_is_refused_with_the_reason() -> None:
    def takes_one(db: Session) -> None: ...

    def takes_a_dict(db: dict[str, Any], settled: Any) -> None: ...

    def takes_async(db: AsyncSession, settled: Any) -> None: ...

    async def takes_sync(db: Session, settled: Any) -> None: ...

    for function, words_of_it in (
        (takes_one, "two parameters"), (takes_a_dict, "not one of"), (takes_async, "it needs a Session"),
        (takes_sync, "it needs a AsyncSession"), (lambda db, settled: None, "it has no name"),
        (functools.partial(takes_a_dict, {}), "it has no name"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words_of_it):
            handler("pay", function)
    assert handler("pay", lambda db, settled: None, name="mark").name == "pay:mark"
