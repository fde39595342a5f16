"""A database in another encoding than UTF8 is refused in one line, before anything is made there (IB-189)."""

import itertools
import os
from collections.abc import Iterator

import pytest
from fix_database import on
from fix_desk import Desk
from fix_sql import query

from idem.migrations import runner

_numbers = itertools.count(1)


@pytest.fixture
def elsewhere(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"idem_encoded_{os.getpid()}_{next(_numbers)}"
    query(server, f"CREATE DATABASE {name} ENCODING '{request.param}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    yield on(server, name)
    query(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("elsewhere", ["SQL_ASCII", "LATIN1", "EUC_JP"], indirect=True)
async def test_ib_189_every_command_says_it_in_one_line(desk: Desk, elsewhere: str) -> None:
    desk.environment["IDEM_DATABASE_URL"] = elsewhere
    for command in (("db", "upgrade"), ("db", "check"), ("worker", "run"), ("api", "run"), ("status",)):
        result = await desk.cli(*command)
        assert (result.code, len(result.err.splitlines())) == (2, 1), (command, result)
        assert "the encoding of this database is" in result.err and "ENCODING 'UTF8'" in result.err
    await desk.cli("doctor", code=1, out="error    encoding: the encoding of this database is")
    with pytest.raises(runner.MigrationError, match="the encoding of this database is"):
        runner.upgrade(elsewhere, environment="test")
    assert query(elsewhere, "SELECT to_regnamespace('idem')")[0] == (None,)
