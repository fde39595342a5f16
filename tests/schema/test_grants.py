"""Roles with nothing but the grants of their kind: each does its whole job, and nothing more."""

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_accept import Acceptor
from fix_desk import run
from fix_spine import Spine, catalogue, standing
from fix_sql import query
from fix_waiting import stopping
from producers.application import accept, synced
from schema.databases import Installed
from schema.sessions import session

from idem import Settled
from idem.decisions import Accepted, InProgress, Replay, Retrying
from idem.migrations import grants, runner
from idem.outbox.database.pool import Database
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.handlers.handler import handler
from idem.outbox.handlers.runner import HandlerRunner
from idem.testing import stepping

Connection = psycopg.Connection[Any]


@pytest.fixture
def seller(installed: Installed) -> Iterator[str]:
    """A role that has nothing yet."""
    name = f"idem_seller_{os.getpid()}"
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} NOSUPERUSER")
        yield name
        admin.execute(f"DROP OWNED BY {name}")
        admin.execute(f"DROP ROLE {name}")


@pytest.fixture
async def spine(installed: Installed, tmp_path: Path) -> AsyncIterator[Spine]:
    """The whole path: accepted as the producer, worked and looked at as the daemon."""
    async with stopping(Database(installed.url("daemon"), name="idem-test", size=8)) as database:
        await database.open()
        async with standing(database, installed.url("producer"), tmp_path) as found:
            yield found


async def advance(installed: Installed, seconds: float) -> None:
    async with await psycopg.AsyncConnection.connect(installed.superuser_url, autocommit=True) as superuser:
        await stepping.advance(superuser, seconds)


async def test_a_daemons_role_does_all_of_a_daemons_work(spine: Spine, installed: Installed, seller: str) -> None:
    synced(installed.url("daemon"), spine.catalogue)
    heard: list[Settled[Any]] = []
    told = handler("pay.keyed", lambda db, settled: heard.append(settled), name="heard")
    async with stopping(HandlerRunner(installed.url("daemon"), {told.name: told})) as handlers:
        await handlers.run_once()
        paid = spine.accepted("paid")
        assert isinstance(spine.accept("paid"), InProgress)
        assert dict((await spine.work()).fates) == {"settled": 1}
        assert isinstance(spine.accept("paid"), Replay)
        assert await handlers.run_once() == 1
        assert [settled.intent for settled in heard] == [paid]

    await spine.sent("lost", faults=["act_then_drop"])
    await advance(installed, 10)
    assert dict((await spine.reconcile()).settled) == {"replay:succeeded": 1}

    absent = await spine.sent("absent", operation="pay.keyless", faults=["drop_before_acting"])
    for _ in range(2):
        await advance(installed, 100)
        await spine.reconcile(hasten=True)
    assert (await spine.key(absent))["state"] == "failed_retryable"
    await advance(installed, 10)
    assert (await spine.reconcile()).redriven == 1
    await spine.work()

    late = spine.accepted("late")
    await advance(installed, 2 * 86400)
    await spine.sweep()
    assert await spine.letters(late) == ["too_late"]
    assert spine.accept("late") == Retrying(late)
    await spine.work()

    runner.grant(installed.url("owner"), seller, "sql", ["t"])
    with session(installed, seller) as connection:
        assert accept(connection, "by-sql").decision == "accepted"
        connection.commit()
    await spine.work()
    assert isinstance(spine.accept("by-sql"), Replay)
    assert spine.effects() == 5

    await advance(installed, 600 * 86400)
    swept = await spine.sweep()
    assert (await spine.one("SELECT count(*) FROM idem.idempotency_keys WHERE state <> 'expired'"))["count"] == 0, swept


MORE = [
    "DELETE FROM idem.idempotency_keys",
    "DELETE FROM idem.intents",
    "UPDATE idem.outbox SET claimed_by = 'me'",
    "UPDATE idem.outbox SET provider_key = gen_random_uuid()",
    "UPDATE idem.idempotency_keys SET fingerprint = ''",
    "UPDATE idem.intents SET params = '{}'",
    "UPDATE idem.evidence SET kind = 'other'",
    "UPDATE idem.events SET type = 'rested'",
    "UPDATE idem.installation SET environment = 'mine'",
    "INSERT INTO idem.dead_letters (subject, reason) VALUES ('x', 'discrepancy')",
    "INSERT INTO idem.producers (role, tenant) VALUES (current_user, '*')",
    "INSERT INTO idem.operations (name, provider, account) VALUES ('x', 'p', 'a')",
    "SELECT body FROM idem.requests",
    "SELECT * FROM idem.evidence",
    "SELECT * FROM idem.api_tokens",
    "CREATE TABLE idem.mine ()",
    "ALTER TABLE idem.outbox DISABLE TRIGGER ALL",
    "DROP SCHEMA idem CASCADE",
]


@pytest.mark.parametrize("statement", MORE)
def test_a_producers_role_may_do_nothing_more(installed: Installed, statement: str) -> None:
    with session(installed, installed.producer) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement)  # type: ignore[call-overload]


BY_SQL = "SELECT d.decision FROM idem.accept(%s, 'pay.keyed', %s, '{\"amount\": 1}') AS d"


@pytest.fixture
def known(installed: Installed) -> Catalogue:
    found = catalogue("http://127.0.0.1:9")
    synced(installed.url("daemon"), found)
    return found


def test_a_role_of_sql_accepts_for_its_tenants_and_sees_nothing(
    installed: Installed, seller: str, known: Catalogue
) -> None:
    with session(installed, seller) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(BY_SQL, ["acme", "k"])
    runner.grant(installed.url("owner"), seller, "sql", ["acme", "o'neill"])
    with session(installed, seller) as connection:
        for tenant in ("acme", "o'neill"):
            assert connection.execute(BY_SQL, [tenant, "k"]).fetchone() == ("accepted",)
        connection.commit()
        assert connection.execute(BY_SQL, ["acme", "k"]).fetchone() == ("in_progress",)
        connection.commit()
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not accept for tenant 'globex'"):
            connection.execute(BY_SQL, ["globex", "k"])
        connection.rollback()
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind = 'r'"
    names = [name for (name,) in query(installed.superuser_url, tables)]
    with session(installed, seller) as connection:
        for statement in (
            *MORE,
            *(f"SELECT FROM idem.{name}" for name in names),
            "SELECT idem.client_retry(NULL, '1 h')",
            "SELECT idem.reserve('acme', 'pay.keyed', 'k2', 'v1:x', '1 h', '1 h', false)",
            "SELECT idem.submit(idem.uuid7(), 'acme', 'pay.keyed', 'k2', '{}', NULL, 'keyed', 'keyed', 'o',"
            " idem.uuid7(), 'POST', '/', '{}', '', '1 h', 0, false, NULL)",
            "SELECT idem.complete(idem.uuid7(), 'acme', 'pay.keyed', 'k2', '{}', NULL, 'local', 200::smallint, '{}',"
            " '', '1 h')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)  # type: ignore[call-overload]
            connection.rollback()


def test_everybody_is_a_tenant_that_can_be_granted(installed: Installed, seller: str, known: Catalogue) -> None:
    runner.grant(installed.url("owner"), seller, "sql", ["*"])
    with session(installed, seller) as connection:
        assert connection.execute(BY_SQL, ["anybody", "k"]).fetchone() == ("accepted",)


def test_a_name_that_another_role_has_now_gives_it_nothing(installed: Installed, seller: str, known: Catalogue) -> None:
    """Renamed, dropped and made anew, or restored in another cluster: the role that was granted had another oid."""
    heir = f"{seller}_heir"
    with psycopg.connect(installed.superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {heir} NOSUPERUSER")
        try:
            for name in (seller, heir):
                runner.grant(installed.url("owner"), name, "sql", ["acme" if name == seller else "globex"])
            admin.execute(f"ALTER ROLE {seller} RENAME TO {seller}_old")
            admin.execute(f"ALTER ROLE {heir} RENAME TO {seller}")
            for name in (seller, f"{seller}_old"):
                for tenant in ("acme", "globex"):
                    with session(installed, name) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(BY_SQL, [tenant, "k"])
            # A grant takes the rows of the name and of the number, and writes one that holds.
            runner.grant(installed.url("owner"), seller, "sql", ["initech"])
            rows = admin.execute("SELECT role, role_oid = %s::text::regrole, tenant FROM idem.producers", [seller])
            assert rows.fetchall() == [(seller, True, "initech")]
            with session(installed, seller) as connection:
                assert connection.execute(BY_SQL, ["initech", "k"]).fetchone() == ("accepted",)
            admin.execute(f"DROP OWNED BY {seller}")
            admin.execute(f"DROP ROLE {seller}")
            admin.execute(f"CREATE ROLE {seller} NOSUPERUSER")
            admin.execute(f"GRANT {installed.producer} TO {seller}")
            with session(installed, seller) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(BY_SQL, ["initech", "k"])
        finally:
            admin.execute(f"DROP OWNED BY {seller}_old")
            admin.execute(f"DROP ROLE {seller}_old")
            admin.execute(f"DROP ROLE IF EXISTS {heir}")


def test_a_library_that_accepts_needs_the_producers_rights_alone(installed: Installed, known: Catalogue) -> None:
    acceptor = Acceptor(known.operations, known.providers)
    with runner.engine(installed.url("producer")).begin() as connection:
        assert isinstance(acceptor.accept(connection, "t", "pay.keyed", "k", {"amount": 1}), Accepted)


HAS = Path(__file__).with_name("grants_has.sql").read_text()


@pytest.mark.parametrize("kind", ["daemon", "operator", "producer", "sql"])
@pytest.mark.parametrize("before", ["daemon", "operator", "producer", "sql", "everything"])
def test_a_grant_leaves_nothing_of_what_a_role_had_before(
    installed: Installed, seller: str, kind: Any, before: Any
) -> None:
    owner = installed.url("owner")
    with psycopg.connect(installed.superuser_url, autocommit=True) as look:
        runner.grant(owner, seller, kind, ["acme"])
        fresh = set(look.execute(HAS, {"role": seller}))
        if before == "everything":
            with psycopg.connect(owner) as giving:
                for what in ("ALL TABLES IN SCHEMA idem", "ALL FUNCTIONS IN SCHEMA idem", "TYPE idem.decision"):
                    giving.execute(f"GRANT ALL ON {what} TO {seller} WITH GRANT OPTION")
                giving.execute(f"GRANT USAGE ON SCHEMA idem TO {seller} WITH GRANT OPTION")
                giving.execute(f"GRANT UPDATE (secret) ON idem.installation TO {seller}")
            # What it passed on does not keep it.
            query(
                installed.url("owner").replace(installed.owner, seller),
                f"GRANT SELECT ON idem.installation TO {installed.daemon}",
            )
        else:
            runner.grant(owner, seller, before, ["globex", "acme"])
        runner.grant(owner, seller, kind, ["acme"])
        assert set(look.execute(HAS, {"role": seller})) == fresh
        runner.grant(owner, seller, kind)
        assert set(look.execute(HAS, {"role": seller})) == fresh - {("tenant", "acme", "", "")}


@pytest.mark.parametrize("role", ["public", "{owner}", "no such role"])
def test_a_grant_to_all_or_to_the_owner_changes_nothing(installed: Installed, role: str) -> None:
    role = role.replace("{owner}", installed.owner)
    acl = "SELECT array_agg(c.relacl::text ORDER BY c.oid), (SELECT array_agg(p.proacl::text ORDER BY p.oid)" \
          " FROM pg_proc p WHERE p.pronamespace = 'idem'::regnamespace), (SELECT nspacl::text FROM pg_namespace" \
          " WHERE nspname = 'idem') FROM pg_class c WHERE c.relnamespace = 'idem'::regnamespace"  # fmt: skip
    with psycopg.connect(installed.superuser_url, autocommit=True) as look:
        before = look.execute(acl).fetchone()
        for options in ((), ("--json",)):
            code, _, said = idem(role, "--as", "producer", *options, url=installed.url("owner"))
            assert code == 1 and "Traceback" not in said, said
        assert look.execute(acl).fetchone() == before


def idem(*arguments: str, url: str | None = None) -> tuple[int, str, str]:
    done = run(["db", "grant", *arguments], {"IDEM_DATABASE_URL": url} if url else {})
    return done.code, done.out, done.err


@pytest.mark.parametrize("kind", ["daemon", "operator", "producer", "sql"])
def test_the_command_grants_and_prints_what_it_did(
    installed: Installed, seller: str, kind: str, tmp_path: Path
) -> None:
    tenants = ["--tenant", "acme", "--tenant", "globex"]
    printed = idem(seller, "--as", kind, *tenants, "--sql")
    assert (printed[0], printed[2]) == (0, "")
    with session(installed, seller) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT idem.uuid7()")
    for _ in range(2):
        code, out, said = idem(seller, "--as", kind, *tenants, url=installed.url("owner"))
        rights = f"{seller} now has the rights of '{kind}' and no others, and may accept in SQL for: acme, globex\n"
        assert (code, out) == (0, rights), said
        assert "environment test" in said
    with psycopg.connect(installed.superuser_url) as look:
        found = look.execute("SELECT tenant FROM idem.producers WHERE role = %s ORDER BY tenant", [seller]).fetchall()
        assert found == [("acme",), ("globex",)]
        may = look.execute("SELECT has_table_privilege(%s, 'idem.outbox', 'DELETE')", [seller]).fetchone()
        assert may == (kind in ("daemon", "operator"),)
    data = json.loads(idem(seller, "--as", kind, *tenants, "--json", url=installed.url("owner"))[1])
    assert (data["role"], data["kind"], data["tenants"]) == (seller, kind, ["acme", "globex"])
    assert data["statements"] == [line.removesuffix(";") for line in printed[1].splitlines()]


def test_the_command_explains_mistakes(installed: Installed, seller: str) -> None:
    owner = installed.url("owner")
    for arguments, url, words in (
        ((seller, "--as", "sql"), owner, ("--tenant", "'*'")),
        (("nobody at all", "--as", "daemon"), owner, ("does not exist", 'CREATE ROLE "nobody at all"')),
        ((seller, "--as", "daemon"), installed.url("daemon"), ("in the hands", f"the schema ({installed.owner})")),
        ((seller, "--as", "sql", "--tenant", ""), owner, ("must not be empty",)),
    ):
        code, _, said = idem(*arguments, url=url)
        assert code == 1 and all(word in said for word in words) and "Traceback" not in said, said
    assert idem(seller, "--as", "everything", url=owner)[0] == 2
    query(installed.superuser_url, "UPDATE idem.alembic_version SET version_num = '0000'")
    code, _, said = idem(seller, "--as", "daemon", url=owner)
    assert code == 1 and "Run `idem db upgrade` first" in said


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_postgresql_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        grants.statements(name, "producer")
    with pytest.raises(ValueError, match="must not be empty"):
        grants.statements("role", "sql", [name])
