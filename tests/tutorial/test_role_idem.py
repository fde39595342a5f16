"""A role of the name idem finds our schema before its own tables: their migration says so, and nothing of it stays."""

import psycopg
import pytest
from fix_sql import query
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from idem.migrations import upgrade_in
from idem.migrations.inside import script
from idem.migrations.runner import MigrationError


@pytest.mark.parametrize("already", [False, True])
def test_it_is_refused(new_database: str, already: bool) -> None:
    if already:
        with create_engine(with_driver(new_database), poolclass=NullPool).begin() as connection:
            upgrade_in(connection, environment="test")
    # What `"$user", public` means to a role of that name.
    engine = create_engine(
        with_driver(new_database), poolclass=NullPool, connect_args={"options": "-csearch_path=idem,public"}
    )
    with pytest.raises(MigrationError, match="ALTER ROLE idem SET search_path"), engine.begin() as connection:
        connection.execute(text("CREATE TABLE public.theirs ()"))
        upgrade_in(connection, environment="test")
    found = query(new_database, "SELECT to_regclass('public.theirs'), to_regnamespace('idem')")[0]
    assert found == (None, "idem" if already else None)


def test_the_printed_script_refuses_it_too(new_database: str) -> None:
    with psycopg.connect(new_database, options="-csearch_path=idem,public") as connection:
        with pytest.raises(psycopg.errors.RaiseException, match="ALTER ROLE idem SET search_path"):
            connection.execute(script("test"))
        connection.rollback()
        assert connection.execute("SELECT to_regnamespace('idem')").fetchone() == (None,)


def with_driver(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)
