"""One database, however its URL is written; one in a file is read anew for each connection."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from connecting.conftest import run
from doctor.conftest import edit
from fix_desk import Desk
from fix_line import target
from fix_waiting import stopping
from psycopg.conninfo import conninfo_to_dict

from idem.errors import ConfigError
from idem.migrations import grants
from idem.outbox.config import database_address
from idem.outbox.database import session
from idem.outbox.database.address import Address, has_password, libpq
from idem.outbox.database.pool import Database, Timeouts
from idem.testing.proxy import Proxy

AT = {"host": "h", "port": "5433", "user": "u", "password": "p@ss:w/#", "dbname": "d"}
BASE = "postgresql://u:p%40ss%3Aw%2F%23@h:5433/d"


@pytest.mark.parametrize(
    ("query", "more"),
    [
        ("", {}),
        ("ssl=require", {"sslmode": "require"}),
        ("ssl=true", {"sslmode": "require"}),
        ("ssl=False", {"sslmode": "disable"}),
        ("ssl=verify-full&sslrootcert=/a/b%20c.pem", {"sslmode": "verify-full", "sslrootcert": "/a/b c.pem"}),
        ("prepared_statement_cache_size=0", {}),
        ("statement_cache_size=0&prepared_statement_name_func=f&command_timeout=5&async_fallback=true", {}),
        ("timeout=7", {"connect_timeout": "7"}),
        ("application_name=a%26b&options=-csearch_path%3Dx", {"application_name": "a&b", "options": "-csearch_path=x"}),
        ("sslmode=require&target_session_attrs=read-write",
         {"sslmode": "require", "target_session_attrs": "read-write"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg"])
def test_the_words_of_others_are_understood(scheme: str, query: str, more: dict[str, str]) -> None:
    url = f"{scheme}{BASE.removeprefix('postgresql')}" + (f"?{query}" if query else "")
    assert conninfo_to_dict(libpq(url)) == AT | more
    assert libpq(libpq(url)) == libpq(url)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://u@a:1,b:2/d", "a,b", "1,2"),
        ("postgresql://u@[::1]:1,[::2]:2/d", "::1,::2", "1,2"),
        ("postgresql://u@/d?host=a:1&host=b:2", "a,b", "1,2"),
        ("postgresql://u@/d?host=a&host=b:2", "a,b", "5432,2"),
        ("postgresql://u@/d?host=/run/pg&port=7", "/run/pg", "7"),
        ("postgresql://u@/d?host=a,b&port=1,2", "a,b", "1,2"),
        ("postgresql://u@%2Frun%2Fpg:7/d", "/run/pg", "7"),
    ],
)
def test_ib_190_hosts_are_those_that_were_written(url: str, host: str, port: str) -> None:
    found = conninfo_to_dict(libpq(url))
    assert (found["host"], found["port"], found["dbname"]) == (host, port, "d")


def test_a_password_is_seen_in_both_of_its_places() -> None:
    assert has_password(BASE) and has_password("postgresql://h/d?password=x") and has_password("postgres://u:@a,b/d")
    assert not has_password("postgresql://u@a:1,b:2/d?passfile=x")


@pytest.mark.parametrize(
    ("query", "named"), [("schema=public", "schema"), ("ssl=maybe", "ssl"), ("timeout=soon", "timeout")]
)
async def test_a_mistake_names_the_variable_and_the_parameter(
    desk: Desk, configuration: Path, query: str, named: str
) -> None:
    edit(configuration, lambda text: text + '\n[database]\nurl_from = { env = "DATABASE_URL" }\n')
    del desk.environment["IDEM_DATABASE_URL"]
    desk.environment["DATABASE_URL"] = f"{BASE}?{query}"
    for command in (("db", "check"), ("status",), ("worker", "run"), ("doctor",)):
        result = await desk.cli(*command)
        said = result.err + result.out
        assert "DATABASE_URL" in said and f" {named}" in said and "IDEM_DATABASE_URL" not in said, said
        assert "p%40ss" not in said and "password" not in said.replace("password percent-encoded", ""), said
        assert "Traceback" not in said


async def test_an_asyncpg_url_with_tls_and_a_cache_size_reaches_the_database(desk: Desk) -> None:
    parts = urlsplit(desk.environment["IDEM_DATABASE_URL"])
    more = "ssl=prefer&prepared_statement_cache_size=0"
    desk.environment["IDEM_DATABASE_URL"] = parts._replace(
        scheme="postgresql+asyncpg", query=f"{parts.query}&{more}" if parts.query else more
    ).geturl()
    assert (await desk.cli("db", "check")).code == 0
    assert (await desk.cli("status")).code == 0


async def test_ib_190_every_command_finds_the_host_that_answers(desk: Desk) -> None:
    if conninfo_to_dict(desk.spine.url).get("password"):
        pytest.skip("through this line only where the server trusts us")
    intent = await desk.pending("k")
    parts = conninfo_to_dict(desk.spine.url)
    async with Proxy(target(desk.spine.url)) as proxy:
        desk.environment["IDEM_DATABASE_URL"] = (
            f"postgresql://{parts['user']}@127.0.0.1:1,127.0.0.1:{proxy.port}/{parts['dbname']}"
            "?target_session_attrs=read-write&sslmode=disable"
        )
        for command in (
            ("db", "upgrade"), ("db", "check"), ("status",), ("intents", "list"), ("reconcile", "--now"),
            ("sweeper", "run", "--once"), ("token", "create", "t", "--label", "x"), ("db", "sync"),
        ):  # fmt: skip
            result = await desk.cli(*command)
            assert (result.code, "Traceback" in result.err) == (0, False), (command, result)
        await desk.cli("intents", "show", intent, code=0)


@pytest.fixture
def logins(db_url: str) -> Iterator[tuple[str, str]]:
    """Two roles that may log in, with a daemon's rights."""
    names = f"idem_old_{os.getpid()}", f"idem_new_{os.getpid()}"
    for name in names:
        run(db_url, f"CREATE ROLE {name} LOGIN", *grants.statements(name, "daemon"))
    yield names
    for name in names:
        run(db_url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


async def test_ib_186_the_next_connection_reads_the_file_anew(
    db_url: str, logins: tuple[str, str], tmp_path: Path
) -> None:
    """What was in the file is refused now, and every session was ended, as a rotation does it."""
    old, new = logins

    def url(role: str) -> str:
        parts = conninfo_to_dict(db_url)
        query = f"?host={quote(parts['host'], safe='')}&port={parts['port']}" if str(parts["host"])[0] == "/" else ""
        at = "" if query else f"{parts['host']}:{parts['port']}"
        return f"postgresql://{role}@{at}/{parts['dbname']}{query}"

    (tmp_path / "url").write_text(url(old) + "\n")
    (tmp_path / "idem.toml").write_text('[database]\nurl_from = { file = "url" }\n')
    address = database_address(tmp_path / "idem.toml", {})
    database = Database(address, name="test", size=2, timeouts=Timeouts(connect=2))
    await database.open()
    async with stopping(database):
        assert await _role(database) == old
        run(
            db_url,
            f"ALTER ROLE {old} NOLOGIN",
            # Waits until each is gone: one that still ends may be asked once more, and says so.
            f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = '{old}'",
        )
        # The pool only says that it has no connection; what is told is why.
        with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
            await _role(database)
        (tmp_path / "url").write_text("")
        with pytest.raises(psycopg.OperationalError, match="the secret is empty"):
            await _role(database)
        (tmp_path / "url").write_text(url(new))
        assert await _role(database) == new
        async with await database.dedicated() as listening:
            row = await (await listening.execute("SELECT current_user::text")).fetchone()
            assert row == (new,)
        with session.connect_sync(address, name="test") as line:
            assert line.execute("SELECT current_user::text").fetchone() == (new,)


async def _role(database: Database) -> str:
    async with database.connection() as connection:
        row = await (await connection.execute("SELECT current_user::text")).fetchone()
        assert row is not None
        return str(row[0])


def test_an_address_never_shows_its_url() -> None:
    assert "p%40ss" not in repr(Address(BASE))
    with pytest.raises(ValueError, match="not a PostgreSQL URL") as wrong:
        Address("mysql://u:s3cret@h/d")
    assert "s3cret" not in str(wrong.value)
    with pytest.raises(ConfigError):
        database_address(None, {"IDEM_DATABASE_URL": "mysql://u:s3cret@h/d"})
