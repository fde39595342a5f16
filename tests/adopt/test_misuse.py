"""Mistakes in the user's code: each is loud at the first request, and says what to write instead."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import psycopg
import pytest
from adopt.proof_desk import CHARGE, Desk, opened_desk  # noqa: F401
from adopt.proof_ways import django_line
from fastapi import Depends, FastAPI, Response
from fix_sql import async_engine_of, engine_of
from flask import Flask
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from idem import Answer, AsyncCall, Idem, Misuse, response
from idem.errors import NotCommitted, NoTransaction, NotStored, OutOfOrder


def test_answer_before_the_commit(desk: Desk) -> None:
    call = desk.begin()
    with desk.session() as db, db.begin():
        assert call.reserve(db)
        call.submit(db, CHARGE)
        with pytest.raises(NotCommitted, match=r"Commit first: leave `with db.begin\(\):`, then answer\(\)"):
            call.answer(wait=5)
    assert call.answer().status == 202


def test_answer_inside_the_savepoint_alone(desk: Desk) -> None:
    call = desk.begin()
    with desk.session() as db, db.begin():
        with db.begin_nested():
            assert call.reserve(db)
            call.submit(db, CHARGE)
        with pytest.raises(NotCommitted):
            call.answer()


@pytest.mark.parametrize("scope", [{}, {"scope": "function"}])
async def test_answer_where_a_dependency_commits_after_the_response(desk: Desk, scope: Any) -> None:
    """Current FastAPI runs what stands behind `yield` once the endpoint has returned, and by default later still."""
    sessions = async_sessionmaker(async_engine_of(desk.url, "asyncpg"))

    async def begun() -> AsyncIterator[AsyncSession]:
        async with sessions.begin() as db:
            yield db

    app = FastAPI()

    @app.post("/pay")
    async def pay(
        call: Annotated[AsyncCall, Depends(desk.charge.call_async)],
        db: Annotated[AsyncSession, Depends(begun, **scope)],
    ) -> Response:
        if await call.reserve(db):
            await call.submit(db, CHARGE)
        return response(await call.answer())

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        with pytest.raises(NotCommitted, match="a `yield` dependency that begins the transaction"):
            await client.post("/pay", headers={"Idempotency-Key": "k1"})
    assert desk.count("idem.idempotency_keys") == 0


@contextmanager
def autocommit(desk: Desk, of: str) -> Iterator[Any]:
    """A connection that is not in a transaction that could be committed with ours."""
    with ExitStack() as stack:
        match of:
            case "connection":
                db = stack.enter_context(desk.engine.connect().execution_options(isolation_level="AUTOCOMMIT"))
                stack.enter_context(db.begin())
            case "engine":
                db = stack.enter_context(Session(engine_of(desk.url, isolation_level="AUTOCOMMIT")))
                stack.enter_context(db.begin())
            case "psycopg":
                db = stack.enter_context(psycopg.connect(desk.url, autocommit=True))
            case _:
                db, _ = stack.enter_context(django_line(desk.url, "READ COMMITTED"))
                db.ensure_connection()
        yield db


@pytest.mark.parametrize("of", ["connection", "engine", "psycopg", "django"])
def test_reserve_outside_a_transaction(desk: Desk, of: str) -> None:
    with (
        autocommit(desk, of) as db,
        pytest.raises(NoTransaction, match=r"needs an open transaction.*not on a connection in autocommit"),
    ):
        desk.begin().reserve(db)
    assert desk.count("idem.idempotency_keys") == 0


@pytest.mark.parametrize("of", ["session", "connection"])
def test_reserve_begins_what_sqlalchemy_begins_by_itself(desk: Desk, of: str) -> None:
    """One rule for reserve and accept, and the caller commits: what he does not commit never happened."""
    for key, commits in (("k1", False), ("k2", True)):
        call = desk.begin(key)
        with desk.session() if of == "session" else desk.engine.connect() as db:
            assert call.reserve(db)
            call.submit(db, CHARGE)
            with pytest.raises(NotCommitted):
                call.answer()
            (db.commit if commits else db.rollback)()
        with contextlib.nullcontext() if commits else pytest.raises(NotStored):
            assert call.answer().status == 202
    assert desk.count("idem.idempotency_keys") == 1


async def test_reserve_begins_in_async_code_too_and_not_in_autocommit(desk: Desk) -> None:
    for number, driver in enumerate(("psycopg", "asyncpg")):
        async with AsyncSession(async_engine_of(desk.url, driver)) as db:
            call = desk.charge.begin_async(key=f"k{number}")
            assert await call.reserve(db)
            await call.submit(db, CHARGE)
            await db.commit()
        engine = async_engine_of(desk.url, driver, isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) as db, db.begin():
            with pytest.raises(NoTransaction):
                await desk.charge.begin_async(key="k9").reserve(db)
    assert desk.count("idem.idempotency_keys") == 2


def test_reserve_without_submit_is_refused_at_commit(desk: Desk) -> None:
    said = "was reserved in this transaction, and nothing was submitted"
    with pytest.raises(IntegrityError, match=said) as found, desk.session() as db, db.begin():
        assert desk.begin().reserve(db)
    assert "call submit, complete or refuse in the same transaction" in str(found.value)
    with pytest.raises(psycopg.errors.CheckViolation, match=said), psycopg.connect(desk.url) as own:
        assert desk.begin().reserve(own)
    with desk.session() as db, db.begin():
        call = desk.begin()
        assert call.reserve(db)
        with pytest.raises(IntegrityError, match=said), db.begin_nested():
            db.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
        call.submit(db, CHARGE)
    assert call.answer().status == 202


def test_answer_without_submit(desk: Desk) -> None:
    call = desk.begin()
    with desk.session() as db:
        db.begin()
        assert call.reserve(db)
        with pytest.raises(OutOfOrder, match="after reserve\\(\\) nothing was submitted"):
            call.answer()
        db.rollback()
    with pytest.raises(NotStored):
        call.answer()


def test_answer_after_a_rollback(desk: Desk) -> None:
    call = desk.begin()
    with desk.session() as db:
        db.begin()
        assert call.reserve(db)
        call.submit(db, CHARGE)
        db.rollback()
    with pytest.raises(NotStored, match=r"was rolled back\. Let the exception pass, or leave out answer"):
        call.answer(wait=30)


async def test_answer_after_a_rollback_is_loud_at_once_and_waits_for_nothing(desk: Desk) -> None:
    engine = async_engine_of(desk.url, "asyncpg")
    call = desk.charge.begin_async(key="k1")
    async with AsyncSession(engine) as db:
        await db.begin()
        assert await call.reserve(db)
        await call.submit(db, CHARGE)
        await db.rollback()
    # The test's own time limit is shorter than this wait.
    with pytest.raises(NotStored):
        await call.answer(wait=600)


def test_submit_twice_without_reserve_and_after_false(desk: Desk) -> None:
    call = desk.begin()
    with desk.session() as db, db.begin():
        with pytest.raises(OutOfOrder, match=r"submit\(\) is only for a new request"):
            call.submit(db, CHARGE)
        assert call.reserve(db)
        with pytest.raises(OutOfOrder, match=r"reserve\(\) was called a second time"):
            call.reserve(db)
        call.submit(db, CHARGE)
        with pytest.raises(OutOfOrder, match="this call was submitted before"):
            call.submit(db, CHARGE)
        with pytest.raises(OutOfOrder, match="this call was submitted before"):
            call.refuse(db, Answer(409))
    again = desk.begin()
    with desk.session() as db, db.begin():
        assert not again.reserve(db)
        with pytest.raises(OutOfOrder, match="call it where reserve\\(\\) has returned True"):
            again.submit(db, CHARGE)
    assert again.answer().status == 409
    with pytest.raises(OutOfOrder, match="before reserve"):
        desk.begin("k2").answer()
    assert desk.count("idem.intents") == 1


def test_submit_in_another_transaction(desk: Desk) -> None:
    call = desk.begin()
    with desk.session() as one, desk.session() as other:
        one.begin()
        other.begin()
        assert call.reserve(one)
        with pytest.raises(IntegrityError, match="this transaction holds no reservation"):
            call.submit(other, CHARGE)
    assert desk.count("idem.idempotency_keys") == 0


def test_a_wrong_kind_of_connection(desk: Desk) -> None:
    with pytest.raises(Misuse, match="str is not a connection that idem knows: give a SQLAlchemy Connection"):
        desk.begin().reserve("postgresql://")
    with pytest.raises(Misuse, match=r"AsyncSession is asynchronous, and this call is not: use `call_async`"):
        desk.begin().reserve(AsyncSession())


async def test_a_sync_connection_in_an_async_call(desk: Desk) -> None:
    said = r"Session cannot be used here.*AsyncSession or AsyncConnection"
    with desk.session() as db, db.begin(), pytest.raises(OutOfOrder, match=said):
        await desk.charge.begin_async(key="k1").reserve(db)
    async with await psycopg.AsyncConnection.connect(desk.url) as own:
        with pytest.raises(OutOfOrder, match=r"AsyncConnection cannot be used here"):
            await desk.charge.begin_async(key="k1").reserve(own)
        with pytest.raises(Misuse, match="is not a connection that idem knows"):
            desk.begin().reserve(own)


def test_a_scoped_session_is_a_session(desk: Desk) -> None:
    """What Flask-SQLAlchemy hands out."""
    db, call = scoped_session(sessionmaker(desk.engine)), desk.begin()
    with db.begin():
        assert call.reserve(db)
        call.submit(db, CHARGE)
    assert call.answer().status == 202
    db.remove()


def test_statuses_that_are_stored_for_ever(desk: Desk) -> None:
    ends: list[tuple[Any, str, Any, str]] = [
        *((desk.local, "complete", Answer(each), f"status {each} cannot be stored here: 2xx to 4xx can")
          for each in (100, 500, 503)),
        *((desk.begin, "refuse", Answer(each), f"status {each} cannot be stored here: 4xx can")
          for each in (200, 302, 500)),
        (desk.local, "submit", {}, "calls no provider: end it with complete"),
    ]  # fmt: skip
    for number, (begin, end, given, said) in enumerate(ends):
        call = begin(f"k{number}")
        with desk.session() as db:
            db.begin()
            assert call.reserve(db)
            with pytest.raises(OutOfOrder, match=said):
                getattr(call, end)(db, given)
    assert desk.count("idem.intents") == 0


def test_a_broken_savepoint_takes_submit_back_and_refuse_may_follow(desk: Desk) -> None:
    call = desk.begin()
    with desk.session() as db, db.begin():
        assert call.reserve(db)
        with pytest.raises(IntegrityError), db.begin_nested():
            call.submit(db, CHARGE)
            db.execute(text("INSERT INTO idem.idempotency_keys (tenant_id) VALUES (NULL)"))
        call.refuse(db, Answer(409, {"sold": "out"}))
    assert (call.answer().status, desk.count("idem.outbox")) == (409, 0)


async def test_a_tenant_that_is_nobody(idem_toml: Path) -> None:
    for nobody in (None, ""):
        note = Idem(idem_toml, tenant=lambda nobody=nobody: nobody).operation("n.create")
        app = FastAPI()

        @app.post("/n")
        async def post(call: Annotated[AsyncCall, Depends(note.call_async)]) -> str:
            return call.tenant

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            with pytest.raises(Misuse, match="gave no tenant"):
                await client.post("/n", headers={"Idempotency-Key": "k1"})


def test_a_tenant_that_no_index_could_hold_is_refused_before_anything_is_written(desk: Desk) -> None:
    with desk.session() as db, db.begin():
        for tenant, words in (("t" * 256, "it has 256 bytes"), ("", "it is empty")):
            with pytest.raises(Misuse, match=f"tenant: {words}"):
                desk.charge.accept(db, CHARGE, key="k1", tenant=tenant)
    assert desk.count("idem.intents") == 0


def test_install_says_which_frameworks_it_is_for(idem_toml: Path) -> None:
    with pytest.raises(Misuse, match="FastAPI, Starlette and Flask, and this is object"):
        Idem(idem_toml).install(object())
    Idem(idem_toml).install(Flask("shop"))
