"""Every kind of connection over which a user may write their own rows and ours: one endpoint, eight ways to run it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from fix_sql import driven
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from idem import Answer

ISOLATIONS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
SYNC = ("connection", "session", "psycopg", "django")
ASYNC = ("psycopg-connection", "psycopg-session", "asyncpg-connection", "asyncpg-session")
TENANT = "acme"
PATH = "/orders"

Run = Callable[[str], Any]
"""Runs one statement on the connection of the endpoint; its first value."""


@dataclass
class Rows:
    """What the endpoint does besides: what is run before reserve, after submit, and how its SAVEPOINT ends."""

    first: Callable[[Run], None] = lambda run: None
    last: Callable[[Run], None] = lambda run: None
    savepoint: str | None = None
    seen: list[bool] = field(default_factory=list)
    """What each `reserve` said."""


class Undo(Exception):
    """What a user raises to have it all undone."""


@dataclass
class Told:
    """What a request came to: the failure of its transaction, and what `answer` said or raised."""

    failed: Exception | None
    answer: Answer | Exception

    @property
    def status(self) -> int | None:
        return self.answer.status if isinstance(self.answer, Answer) else None


def request(way: str, charge: Any, url: str, isolation: str, key: str, rows: Rows) -> Told:
    """One request of a client, in a thread of its own or in a loop of its own."""
    if way in ASYNC:
        return asyncio.run(_asynchronous(way, charge, url, isolation, key, rows))
    return _synchronous(way, charge, url, isolation, key, rows)


def _synchronous(way: str, charge: Any, url: str, isolation: str, key: str, rows: Rows) -> Told:
    call = charge.begin(key=key, tenant=TENANT, path=PATH, body={"order": key})
    with _opened(way, url, isolation) as (db, transaction, savepoint, run):
        failed = None
        try:
            with transaction():
                rows.first(run)
                with suppress(_Back), savepoint() if rows.savepoint else nullcontext():
                    _pay(call, db, run, key, rows)
                    if rows.savepoint == "rolled back":
                        raise _Back
                rows.last(run)
        except Exception as error:
            failed = error
        try:
            return Told(failed, call.answer())
        except Exception as error:
            return Told(failed, error)


class _Back(Exception):
    pass


def _pay(call: Any, db: Any, run: Run, key: str, rows: Rows) -> None:
    rows.seen.append(call.reserve(db))
    if rows.seen[-1]:
        run(f"INSERT INTO bought (key) VALUES ('{key}')")
        call.submit(db, {"amount": 100, "currency": "eur"})


@contextmanager
def _opened(way: str, url: str, isolation: str) -> Iterator[tuple[Any, Any, Any, Run]]:
    if way in ("connection", "session"):
        engine = create_engine(driven(url), isolation_level=isolation)
        made: Connection | Session = engine.connect() if way == "connection" else Session(engine)
        try:
            yield made, made.begin, made.begin_nested, lambda sql: _first(made.execute(text(sql)))
        finally:
            _quietly(made.close)
            engine.dispose()
    elif way == "psycopg":
        with closing(psycopg.connect(url, autocommit=True)) as own:
            own.isolation_level = _level(isolation)
            yield own, own.transaction, own.transaction, lambda sql: _first(own.execute(sql))
    else:
        with django_line(url, isolation) as (own, atomic):
            yield own, atomic, atomic, lambda sql: _executed(own, sql)


def _level(isolation: str) -> psycopg.IsolationLevel:
    return psycopg.IsolationLevel[isolation.replace(" ", "_")]


@contextmanager
def django_line(url: str, isolation: str) -> Iterator[tuple[Any, Any]]:
    import django
    from django.conf import settings
    from django.db import connections, transaction

    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    connections.settings["shop"] = connections.configure_settings(
        {"default": {}, "shop": django_settings(url, isolation)}
    )["shop"]
    own = connections["shop"]
    try:
        yield own, lambda: transaction.atomic("shop")
    finally:
        _quietly(own.close)
        del connections["shop"]
        del connections.settings["shop"]


def django_settings(url: str, isolation: str = "READ COMMITTED") -> dict[str, Any]:
    """A database of Django's settings."""
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": query.get("host", parts.hostname or ""),
        "PORT": query.get("port", str(parts.port or "")),
        "OPTIONS": {"isolation_level": _level(isolation)},
    }


async def _asynchronous(way: str, charge: Any, url: str, isolation: str, key: str, rows: Rows) -> Told:
    driver, _, kind = way.partition("-")
    call = charge.begin_async(key=key, tenant=TENANT, path=PATH, body={"order": key})
    engine = create_async_engine(driven(url, driver), isolation_level=isolation)
    db: AsyncConnection | AsyncSession = engine.connect() if kind == "connection" else AsyncSession(engine)
    try:
        async with db:
            failed = None
            try:
                async with db.begin():
                    await _beside(db, rows.first)
                    with suppress(_Back):
                        async with db.begin_nested() if rows.savepoint else nullcontext():
                            await _pay_async(call, db, key, rows)
                            if rows.savepoint == "rolled back":
                                raise _Back
                    await _beside(db, rows.last)
            except Exception as error:
                failed = error
            try:
                return Told(failed, await call.answer())
            except Exception as error:
                return Told(failed, error)
    finally:
        await engine.dispose()


async def _pay_async(call: Any, db: AsyncConnection | AsyncSession, key: str, rows: Rows) -> None:
    rows.seen.append(await call.reserve(db))
    if rows.seen[-1]:
        await db.execute(text(f"INSERT INTO bought (key) VALUES ('{key}')"))
        await call.submit(db, {"amount": 100, "currency": "eur"})


async def _beside(db: AsyncConnection | AsyncSession, what: Callable[[Run], None]) -> None:
    await db.run_sync(lambda sync: what(lambda sql: _first(sync.execute(text(sql)))))


def _first(cursor: Any) -> Any:
    if hasattr(cursor, "returns_rows"):
        return cursor.scalar() if cursor.returns_rows else None
    return cursor.fetchone()[0] if cursor.description else None


def _executed(own: Any, sql: str) -> Any:
    with own.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None


def _quietly(close: Callable[[], Any]) -> None:
    try:
        close()
    except Exception as error:  # the line was cut
        assert error is not None
