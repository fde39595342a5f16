"""An upgrade and a grant run nobody else's code and leave nothing in other hands: the schema belongs to one role."""

import threading
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from fix_desk import run
from fix_sql import engine_of, query
from fix_waiting import until_it_holds
from schema.databases import ENVIRONMENT, Installed, as_role, new_database

from idem.migrations import runner, upgrade_in
from idem.migrations.inside import script
from idem.migrations.upgrade_lock import UPGRADE_LOCK

VERSIONS = "CREATE TABLE idem.alembic_version (version_num varchar(32) NOT NULL PRIMARY KEY)"
TRAP = (
    "CREATE FUNCTION {where}.trap() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'TRAP, run as %', current_user; END $$"
)
SPRING = (
    "CREATE TRIGGER spring BEFORE INSERT OR UPDATE ON idem.alembic_version FOR EACH ROW EXECUTE FUNCTION {where}.trap()"
)
OPEN = "GRANT ALL ON SCHEMA idem TO PUBLIC", "GRANT ALL ON ALL TABLES IN SCHEMA idem TO PUBLIC"
READ = (
    "CREATE FUNCTION idem.trap() RETURNS varchar LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'TRAP, run as %', current_user; END $$"
)

# Who runs each statement, and what: {where} is a schema of the stranger's own.
PREPARED: dict[str, list[tuple[str, str]]] = {
    "the schema": [("stranger", "CREATE SCHEMA idem"), *(("stranger", each) for each in OPEN)],
    "a schema with a trap": [
        ("stranger", each)
        for each in ("CREATE SCHEMA idem", VERSIONS, TRAP.replace("{where}", "idem"),
                     SPRING.replace("{where}", "idem"), *OPEN)
    ],
    "a view in place of the revision": [
        ("stranger", each)
        for each in ("CREATE SCHEMA idem", READ, "CREATE VIEW idem.alembic_version AS SELECT idem.trap() version_num",
                     *OPEN)
    ],
    "a table in the owner's schema": [
        ("us", "CREATE SCHEMA idem"), ("us", "GRANT CREATE, USAGE ON SCHEMA idem TO {stranger}"),
        ("stranger", VERSIONS), ("stranger", TRAP), ("stranger", SPRING), *(("stranger", OPEN[1]),),
        ("us", "REVOKE CREATE ON SCHEMA idem FROM {stranger}"),
    ],
    "a function on the owner's table": [
        ("us", "CREATE SCHEMA idem"), ("us", VERSIONS), ("us", "GRANT USAGE ON SCHEMA idem TO {stranger}"),
        ("us", "GRANT TRIGGER ON idem.alembic_version TO {stranger}"), ("stranger", TRAP), ("stranger", SPRING),
    ],
    "the right to create there": [
        ("us", "CREATE SCHEMA idem"), ("us", "GRANT CREATE, USAGE ON SCHEMA idem TO {stranger}"),
    ],
    "everybody's right to create there": [
        ("us", "CREATE SCHEMA idem"), ("us", "GRANT CREATE, USAGE ON SCHEMA idem TO PUBLIC"),
    ],
    "a function, a type and an operator": [
        ("us", "CREATE SCHEMA idem"), ("us", "GRANT CREATE, USAGE ON SCHEMA idem TO {stranger}"),
        ("stranger", "CREATE FUNCTION idem.same(text, uuid) RETURNS boolean LANGUAGE sql RETURN false"),
        ("stranger", "CREATE OPERATOR idem.= (LEFTARG = text, RIGHTARG = uuid, FUNCTION = idem.same)"),
        ("stranger", "CREATE TYPE idem.decision AS ENUM ('x')"),
        ("us", "REVOKE CREATE ON SCHEMA idem FROM {stranger}"),
    ],
}  # fmt: skip


def by_revision(url: str) -> None:
    with engine_of(url).begin() as connection:
        upgrade_in(connection, environment=ENVIRONMENT)


def by_hand(url: str, text: str) -> None:
    query(url, text)


def by_command(url: str) -> None:
    done = run(["db", "upgrade"], {"IDEM_DATABASE_URL": url, "IDEM_ENVIRONMENT": ENVIRONMENT})
    assert "Traceback" not in done.err
    if done.code:
        raise runner.MigrationError(done.err)


WAYS: dict[str, Callable[[str], object]] = {
    "db upgrade": by_command,
    "upgrade": lambda url: runner.upgrade(url, environment=ENVIRONMENT),
    "a revision": by_revision,
    "a revision as text": lambda url: by_hand(url, script(ENVIRONMENT)),
    "db sql": lambda url: by_hand(url, runner.offline_sql(ENVIRONMENT)),
}


WAITS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = %s"


@pytest.fixture
def stranger(server: str) -> Iterator[str]:
    """An ordinary role."""
    name = f"idem_stranger_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} NOSUPERUSER")
        yield name
        admin.execute(f"DROP ROLE {name}")


@pytest.fixture
def ours(server: str, roles: tuple[str, str, str], stranger: str) -> Iterator[str]:
    """A database of the owner's, in which the stranger may create schemas and has one."""
    with new_database(server, owner=roles[0]) as url:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"CREATE SCHEMA {stranger} AUTHORIZATION {stranger}")
            admin.execute(f"GRANT USAGE ON SCHEMA {stranger} TO PUBLIC")
            for (name,) in admin.execute("SELECT current_database()"):
                admin.execute(f"GRANT CREATE ON DATABASE {name} TO {stranger}")
        yield url


@pytest.mark.parametrize("superuser", [False, True], ids=["as the owner", "as a superuser"])
@pytest.mark.parametrize("prepared", PREPARED)
def test_what_another_role_has_prepared_is_not_built_upon(
    ours: str, roles: tuple[str, str, str], stranger: str, prepared: str, superuser: bool
) -> None:
    us = ours if superuser else as_role(ours, roles[0])
    for who, statement in PREPARED[prepared]:
        query(
            us if who == "us" else as_role(ours, stranger),
            statement.replace("{where}", stranger).replace("{stranger}", stranger),
        )
    named = "PUBLIC" if prepared.startswith("everybody") else stranger
    for way, upgrade in WAYS.items():
        with pytest.raises((runner.MigrationError, psycopg.Error)) as refused:
            upgrade(us)
        assert "TRAP" not in str(refused.value) and f"({named})" in str(refused.value), (way, refused.value)
        assert "OWNER TO" in str(refused.value), way
    assert query(ours, "SELECT to_regclass('idem.intents')")[0] == (None,)


def test_what_is_prepared_while_an_upgrade_waits_for_its_turn_is_refused_too(ours: str, stranger: str) -> None:
    failed: list[BaseException] = []

    def upgrade() -> None:
        try:
            runner.upgrade(ours, environment=ENVIRONMENT)
        except BaseException as error:
            failed.append(error)

    with psycopg.connect(ours, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s)", [UPGRADE_LOCK])
        thread = threading.Thread(target=upgrade)
        thread.start()
        until_it_holds(lambda: holder.execute(WAITS, [UPGRADE_LOCK]).fetchone() == (1,))
        with psycopg.connect(as_role(ours, stranger), autocommit=True) as connection:
            for _, statement in PREPARED["a schema with a trap"]:
                connection.execute(statement)  # type: ignore[call-overload]
    thread.join(60)
    assert len(failed) == 1 and "TRAP" not in str(failed[0]) and f"({stranger})" in str(failed[0]), failed


def test_roles_that_act_as_the_owner_upgrade_and_all_belongs_to_them(
    ours: str, roles: tuple[str, str, str], stranger: str
) -> None:
    """A member of the role that owns the schema; a superuser's schema is another superuser's as well."""
    with psycopg.connect(ours, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA idem AUTHORIZATION {roles[0]}")
        admin.execute(f"GRANT {roles[0]} TO {stranger}")
        assert runner.upgrade(as_role(ours, stranger), environment=ENVIRONMENT).up_to_date
        assert runner.upgrade(as_role(ours, stranger), environment=ENVIRONMENT).up_to_date
        admin.execute(f"REVOKE {roles[0]} FROM {stranger}")
        with pytest.raises(runner.MigrationError, match="in the hands"):
            runner.upgrade(as_role(ours, roles[0]), environment=ENVIRONMENT)


def test_a_grant_runs_nothing_of_anothers(installed: Installed, stranger: str) -> None:
    """A superuser who grants would run the triggers of idem.producers as itself."""
    with pytest.raises(runner.MigrationError, match="in the hands"):
        runner.grant(installed.superuser_url, stranger, "sql", ["t"])
