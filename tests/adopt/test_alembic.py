"""idem in somebody else's Alembic: their folder, their env.py as Alembic's own templates write it, their command."""

import asyncio
import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fix_sql import async_engine_of, driven, engine_of, query
from schema.catalog import dump
from schema.databases import as_role, new_database
from schema.revisions import with_another
from sqlalchemy import Connection, text

from idem.migrations import MigrationError, include_name, runner, upgrade_in
from idem.migrations.inside import apply, script

MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

class Base(DeclarativeBase):
    pass

class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]
    state: Mapped[str]
"""
REVISION = """
import sqlalchemy as sa
from alembic import context, op
from idem.migrations import upgrade_in

revision, down_revision, branch_labels, depends_on = "a1", None, None, None

def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True), sa.Column("total", sa.Integer,
                    nullable=False))
    before = op.get_context(), context.get_context()
    upgrade_in(op, environment="test")
    assert (op.get_context(), context.get_context()) == before
    op.add_column("orders", sa.Column("state", sa.String, nullable=False, server_default="new; it's 100%"))
    op.alter_column("orders", "state", server_default=None)

def downgrade():
    op.drop_table("orders")
"""
NEXT = """
from alembic import op
from idem.migrations import upgrade_in

revision, down_revision, branch_labels, depends_on = "a2", "a1", None, None

def upgrade():
    upgrade_in(op, environment="test")

def downgrade():
    pass
"""
STYLES = [("generic", "psycopg"), ("async", "asyncpg"), ("async", "psycopg")]
STYLE = pytest.mark.parametrize("style", STYLES, ids=["-".join(style) for style in STYLES])


@dataclass
class Project:
    """A user's folder. Its own packages have the names of ours, and stand first on the path."""

    path: Path
    url: str

    def run(self, *arguments: str, fails: bool = False) -> str:
        """A command in the folder; what it wrote."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path, capture_output=True, text=True,
            env={k: v for k, v in os.environ.items() if k != "IDEM_ENVIRONMENT"} | {"PYTHONPATH": str(self.path)},
        )  # fmt: skip
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def alembic(self, *arguments: str, fails: bool = False) -> str:
        return self.run("-m", "alembic", *arguments, fails=fails)

    def edit(self, name: str, *changes: tuple[str, str]) -> None:
        """Replace what must be there."""
        text = (self.path / name).read_text()
        for before, after in changes:
            assert before in text, (name, before)
            text = text.replace(before, after)
        (self.path / name).write_text(text)

    def tables(self) -> set[str]:
        return {name for (name,) in query(self.url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    with new_database(server) as url:
        yield url


@pytest.fixture
def style() -> tuple[str, str]:
    return STYLES[0]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """What `alembic init` makes of each of its templates, made once."""

    @functools.cache
    def init(template: str) -> Path:
        folder = tmp_path_factory.mktemp(template)
        Project(folder, "").alembic("init", "-t", template, "migrations")
        return folder

    return init


@pytest.fixture
def project(tmp_path: Path, empty_database: str, style: tuple[str, str], begun: Callable[[str], Path]) -> Project:
    project = Project(tmp_path, empty_database)
    shutil.copytree(begun(style[0]), tmp_path, dirs_exist_ok=True)
    for ours in ("migrations", "outbox", "sweeper", "testing"):
        (tmp_path / ours).mkdir(exist_ok=True)
        (tmp_path / ours / "__init__.py").write_text("theirs = True\n")
    (tmp_path / "cli.py").write_text("theirs = True\n")
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "migrations" / "versions" / "a1_orders.py").write_text(REVISION)
    url = driven(empty_database, style[1]).replace("%", "%%")
    project.edit("alembic.ini", ("sqlalchemy.url = driver://user:pass@localhost/dbname", f"sqlalchemy.url = {url}"))
    project.edit(
        "migrations/env.py",
        ("target_metadata = None", "from idem.migrations import include_name\nfrom models import Base\n"
                                   "target_metadata = Base.metadata"),
        ("target_metadata=target_metadata", "target_metadata=target_metadata, include_schemas=True, "
                                            "include_name=include_name"),
    )  # fmt: skip
    return project


@pytest.mark.process
@STYLE
def test_their_revision_brings_the_same_schema_as_our_command(project: Project, db_url: str) -> None:
    said = project.run(
        "-c", "import sys; sys.stderr = sys.stdout; from alembic.config import main; main()", "upgrade", "head"
    )
    assert "Running upgrade" in said and "Generating static SQL" not in said
    assert dump(project.url) == dump(db_url)
    assert project.tables() == {"orders", "alembic_version"}
    assert query(project.url, "SELECT environment, octet_length(secret) FROM idem.installation") == [("test", 32)]
    assert query(project.url, "SELECT version_num FROM public.alembic_version") == [("a1",)]
    project.alembic("upgrade", "head")
    (project.path / "migrations" / "versions" / "a2_again.py").write_text(NEXT)
    project.alembic("upgrade", "head")
    assert dump(project.url) == dump(db_url)
    assert runner.upgrade(project.url, environment="test").up_to_date


@pytest.mark.process
@STYLE
def test_their_autogenerate_neither_sees_nor_drops_our_tables(project: Project) -> None:
    project.alembic("upgrade", "head")
    assert "No new upgrade operations detected" in project.alembic("check")
    project.alembic("revision", "--autogenerate", "-m", "nothing")
    (written,) = (project.path / "migrations" / "versions").glob("*_nothing.py")
    assert re.search(r"def upgrade.*?pass\n", written.read_text(), re.DOTALL)
    assert "op." not in written.read_text().partition("def upgrade")[2]
    # It does look at what is theirs.
    project.edit("models.py", ("total: Mapped[int]", "total: Mapped[int]\n    note: Mapped[str | None]"))
    project.alembic("upgrade", "head")
    assert "orders" in project.alembic("check", fails=True)


@pytest.mark.process
def test_without_the_filter_it_would_drop_them_all(project: Project) -> None:
    """What `include_name` is for; without `include_schemas` nothing is seen either way."""
    project.alembic("upgrade", "head")
    project.edit("migrations/env.py", (", include_name=include_name", ""))
    assert "remove_table" in project.alembic("check", fails=True)
    project.edit("migrations/env.py", (", include_schemas=True", ""))
    assert "No new upgrade operations detected" in project.alembic("check")
    project.edit("migrations/env.py", ("target_metadata=target_metadata", "target_metadata=target_metadata, "
                                                                          "include_name=include_name"))  # fmt: skip
    assert "No new upgrade operations detected" in project.alembic("check")


@pytest.mark.process
def test_their_downgrade_leaves_ours_alone(project: Project, db_url: str) -> None:
    project.alembic("upgrade", "head")
    before = query(project.url, "SELECT * FROM idem.installation")
    project.alembic("downgrade", "base")
    assert project.tables() == {"alembic_version"}
    assert dump(project.url) == dump(db_url)
    project.alembic("upgrade", "head")
    assert query(project.url, "SELECT * FROM idem.installation") == before


@pytest.mark.process
@STYLE
def test_their_offline_script_makes_the_same(project: Project, db_url: str, server: str) -> None:
    written = project.alembic("upgrade", "head", "--sql")
    assert project.tables() == set()
    with new_database(server) as other:
        query(other, written)
        columns = query(other, "SELECT column_name FROM information_schema.columns WHERE table_name = 'orders'")
        assert {name for (name,) in columns} == {"id", "total", "state"}
        assert query(other, "SELECT environment FROM idem.installation") == [("test",)]
        assert dump(other) == dump(db_url)
        assert runner.upgrade(other, environment="test").up_to_date


PAGE = Path(__file__).parents[2] / "docs" / "adopt" / "alembic.md"


@pytest.mark.process
def test_the_page_for_users_says_what_works(project: Project, db_url: str) -> None:
    """Their revision, their env.py and their filter, as the page prints them."""
    revision, configure, own = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (project.path / "migrations" / "versions" / "a1_orders.py").write_text(revision)
    project.edit("models.py", ("    id: Mapped[int] =", "    id: Mapped[UUID] ="), ("    state: Mapped[str]\n", ""))
    project.edit("models.py", ("from sqlalchemy.orm", "from uuid import UUID\nfrom sqlalchemy.orm"))
    project.alembic("upgrade", "head")
    assert dump(project.url) == dump(db_url)
    assert query(project.url, "SELECT environment FROM idem.installation")[0] == ("production",)
    assert "No new upgrade operations detected" in project.alembic("check")
    assert "include_schemas=True,\n    include_name=include_name,\n" in configure
    names: dict[str, Any] = {"include_name": include_name}
    exec(own, names)
    assert [names["include"](*each) for each in (
        ("orders", "table", {"schema_name": None}), ("legacy_orders", "table", {"schema_name": None}),
        ("outbox", "table", {"schema_name": "idem"}), (None, "schema", {}), ("idem", "schema", {}),
    )] == [True, False, False, True, False]  # fmt: skip


@pytest.mark.process
def test_a_revision_that_fails_takes_all_of_it_back(project: Project) -> None:
    project.edit(
        "migrations/versions/a1_orders.py",
        ('    op.alter_column("orders", "state", server_default=None)', '    op.execute("SELECT 1 / 0")'),
    )
    assert "division by zero" in project.alembic("upgrade", "head", fails=True)
    assert query(project.url, "SELECT to_regnamespace('idem'), to_regclass('orders')")[0] == (None, None)


@pytest.mark.process
def test_nothing_of_ours_is_shadowed_by_their_names(project: Project) -> None:
    found = project.run(
        "-c",
        "import cli, migrations, outbox, sweeper, testing\n"
        "assert all(each.theirs for each in (cli, migrations, outbox, sweeper, testing))\n"
        "import idem.cli.main, idem.migrations.runner, idem.outbox.accept.accept, idem.sweeper.daemon, idem.testing\n"
        "import sys\n"
        "print(*{m.__file__ for n, m in sys.modules.items() if n.startswith('idem') and m.__file__}, sep='\\n')",
    ).split()
    assert len(found) > 20
    assert not [name for name in found if Path(name).is_relative_to(project.path)]
    written = project.run("-m", "idem.cli.main", "db", "grant", "somebody", "--as", "sql", "--tenant", "t", "--sql")
    assert "GRANT" in written


PLANTED = """
CREATE TABLE public.caught (who text);
CREATE FUNCTION public.jsonb_build_array(text, text, text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.caught VALUES (current_user);
    RETURN pg_catalog.jsonb_build_array($1, $2, $3);
END $$;
CREATE FUNCTION public.format(text, regprocedure) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.caught VALUES (current_user);
    RETURN pg_catalog.format($1, $2);
END $$;
"""


@pytest.mark.parametrize("how", ["in their revision", "as their script", "as our script"])
def test_a_function_that_fits_better_than_the_server_s_own_is_not_called(empty_database: str, how: str) -> None:
    """Another role may create functions in `public`; none of them runs as the owner of the schema."""
    query(empty_database, PLANTED)
    with engine_of(empty_database).begin() as connection:
        path = connection.scalar(text("SHOW search_path"))
        if how == "in their revision":
            upgrade_in(connection, environment="test")
        elif how == "as their script":
            connection.exec_driver_sql(script("test"), execution_options={"no_parameters": True})
        if how != "as our script":
            assert connection.scalar(text("SHOW search_path")) == path
    if how == "as our script":
        query(empty_database, runner.offline_sql("test"))
    assert query(empty_database, "SELECT count(*) FROM public.caught") == [(0,)]
    assert query(empty_database, "SELECT environment FROM idem.installation") == [("test",)]


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """The product's revisions and one more."""
    return with_another(tmp_path / "scripts", "next")


@pytest.mark.parametrize("offline", [False, True])
def test_it_does_nothing_twice(empty_database: str, server: str, template: str, scripts: Path, offline: bool) -> None:
    """From the product's schema to the next revision, and again."""
    runner.upgrade(empty_database, environment="test")
    with new_database(server, template=template) as command:
        runner.upgrade(command, environment="test", scripts=scripts)
        for _ in range(2):
            if offline:
                query(empty_database, script("test", scripts=scripts))
            else:
                with engine_of(empty_database).begin() as connection:
                    apply(connection, None, scripts=scripts)
            assert dump(empty_database) == dump(command)


def test_over_an_async_connection(empty_database: str, db_url: str) -> None:
    async def upgrade() -> None:
        engine = async_engine_of(empty_database, "asyncpg")
        async with engine.begin() as connection:
            with pytest.raises(TypeError, match="run_sync"):
                upgrade_in(connection)
            await connection.run_sync(upgrade_in, environment="test")

    asyncio.run(upgrade())
    assert dump(empty_database) == dump(db_url)


@pytest.fixture
def connection(empty_database: str) -> Iterator[Connection]:
    with engine_of(empty_database).connect() as connection:
        yield connection


def test_the_environment_must_be_named_once(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IDEM_ENVIRONMENT", raising=False)
    with pytest.raises(MigrationError, match=r"the environment is not set.*IDEM_ENVIRONMENT"):
        upgrade_in(connection)
    connection.rollback()
    monkeypatch.setenv("IDEM_ENVIRONMENT", "blue's 100% :x")
    upgrade_in(connection)
    connection.commit()
    monkeypatch.delenv("IDEM_ENVIRONMENT")
    upgrade_in(connection)
    assert connection.scalar(text("SELECT environment FROM idem.installation")) == "blue's 100% :x"
    with pytest.raises(MigrationError, match="environment blue's 100% :x, but the migration says green"):
        upgrade_in(connection, environment="green")
    connection.rollback()
    driver: Any = connection.connection.driver_connection
    driver.execute(script("blue's 100% :x"))
    with pytest.raises(psycopg.errors.RaiseException, match="environment blue's 100% :x, but the migration says 7%"):
        driver.execute(script("7%"))


@pytest.mark.quick
@pytest.mark.process
def test_offline_too_the_environment_must_be_named(project: Project) -> None:
    project.edit("migrations/versions/a1_orders.py", ('upgrade_in(op, environment="test")', "upgrade_in(op)"))
    assert "the environment is not set" in project.alembic("upgrade", "head", "--sql", fails=True)


def test_outside_of_a_transaction_it_is_refused(connection: Connection) -> None:
    with pytest.raises(MigrationError, match="AUTOCOMMIT"):
        upgrade_in(connection.execution_options(isolation_level="AUTOCOMMIT"), environment="test")
    assert connection.scalar(text("SELECT to_regnamespace('idem')")) is None


def test_a_newer_schema_is_left_alone(connection: Connection) -> None:
    upgrade_in(connection, environment="test")
    connection.execute(text("UPDATE idem.alembic_version SET version_num = '9999'"))
    with pytest.raises(MigrationError, match="at revision 9999, which this version of idem does not know"):
        upgrade_in(connection, environment="test")


def test_it_waits_for_no_reader_and_keeps_timeouts(empty_database: str, connection: Connection, scripts: Path) -> None:
    runner.upgrade(empty_database, environment="test")
    with psycopg.connect(empty_database) as reader:
        reader.execute("SELECT count(*) FROM idem.idempotency_keys")
        with pytest.raises(MigrationError, match="pg_stat_activity"):
            apply(connection, None, 0.05, scripts)
        connection.rollback()
    connection.execute(text("SET LOCAL lock_timeout = '77s'"))
    apply(connection, None, 0.05, scripts)
    assert connection.scalar(text("SHOW lock_timeout")) == "77s"


WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"


def test_our_command_and_their_revision_take_turns(empty_database: str, connection: Connection) -> None:
    done: list[runner.Schema] = []
    upgrade_in(connection, environment="test")
    command = threading.Thread(target=lambda: done.append(runner.upgrade(empty_database, environment="test")))
    command.start()
    with psycopg.connect(empty_database, autocommit=True) as look:
        while look.execute(WAITS).fetchone() == (False,):
            assert command.is_alive()
    assert done == []
    connection.commit()
    command.join(60)
    assert [schema.up_to_date for schema in done] == [True]


def test_an_ordinary_owner_of_a_database_needs_no_more(server: str, db_url: str) -> None:
    owner = f"idem_adopter_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {owner} NOSUPERUSER NOCREATEDB NOCREATEROLE")
        try:
            with new_database(server, owner=owner) as url:
                with engine_of(as_role(url, owner)).begin() as connection:
                    upgrade_in(connection, environment="test")
                assert dump(url) == dump(db_url)
        finally:
            admin.execute(f"DROP ROLE {owner}")


@pytest.mark.parametrize(
    ("name", "kind", "parents", "seen"),
    [
        ("idem", "schema", {}, False),
        (None, "schema", {}, True),
        ("shop", "schema", {}, True),
        ("outbox", "table", {"schema_name": "idem"}, False),
        ("outbox", "table", {"schema_name": None}, True),
        ("idem", "table", {"schema_name": "shop"}, True),
        ("id", "column", {"schema_name": None, "table_name": "idem"}, True),
        ("keys_by_intent", "index", {"schema_name": "idem", "table_name": "idempotency_keys"}, False),
    ],
)
def test_the_filter_hides_our_schema(name: str | None, kind: str, parents: dict[str, str | None], seen: bool) -> None:
    assert include_name(name, kind, parents) is seen
