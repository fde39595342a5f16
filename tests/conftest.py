"""What every test can ask for, and the layer of each test (`layers`).

A fixture here imports what it needs when a test uses it: a pure test starts in a second.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from layers import (  # noqa: F401
    pytest_addoption,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_ignore_collect,
    pytest_pycollect_makemodule,
    pytest_report_header,
    pytest_runtest_protocol,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)

if TYPE_CHECKING:
    from fix_api import Client
    from fix_desk import Desk
    from fix_restore import Restorable
    from fix_spine import Spine

    from idem.outbox.database.pool import Database

# A suite that was started in the background, or by nohup, ignores Ctrl-C or the end of its terminal, and so would every
# program that it starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Several processes of tests get a width each; what a command prints here is not for a terminal.
os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def variables_as_they_begin() -> Iterator[None]:
    """A command that ran in this process before may have set a variable for the programs that it starts."""
    before = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    yield
    for name in os.environ.keys() - before.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def logging_as_it_begins() -> None:
    """A command or daemon that ran in this process before has chosen what is logged."""
    if "structlog" in sys.modules:
        sys.modules["structlog"].reset_defaults()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server on which this user may create databases."""
    import fix_database
    import fix_kept

    with fix_database.server() as url:
        fix_kept.lend(url)
        yield url
        fix_kept.end(url)


@pytest.fixture(scope="session")
def superuser_url(server: str) -> str:
    """A superuser's URL: for roles, outages and looks at other sessions."""
    return server


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """The name of a database with the newest schema."""
    import fix_database

    with fix_database.template(server) as name:
        yield name


@pytest.fixture
def db_url(request: pytest.FixtureRequest, server: str, template: str) -> Iterator[str]:
    """A database of this test's own, with the schema and nothing in it."""
    import fix_database
    import fix_kept

    fix_kept.own = request.node.get_closest_marker("own_sessions") is not None
    with fix_database.lent(server, template) as url:
        yield url


@pytest.fixture
async def database(db_url: str) -> AsyncIterator[Database]:
    """The daemons' connections to this test's database."""
    import fix_database
    import fix_kept

    async with fix_database.connected(db_url, of=fix_kept.KeptDatabase) as database:
        yield database


@pytest.fixture
async def spine(database: Database, db_url: str, tmp_path: Path) -> AsyncIterator[Spine]:
    """The whole path on this test's own database, with a bank that behaves until it is told otherwise."""
    import fix_spine

    async with fix_spine.standing(database, db_url, tmp_path) as spine:
        yield spine


@pytest.fixture
async def restorable(server: str, db_url: str, tmp_path: Path) -> AsyncIterator[Restorable]:
    """The whole path on a database that can go back to a copy of itself."""
    import fix_restore

    async with fix_restore.restorable(server, db_url, tmp_path) as restorable:
        yield restorable


@pytest.fixture
async def api(spine: Spine) -> AsyncIterator[Client]:
    """A running API, asked by the tenant `t`."""
    import fix_api

    async with fix_api.client(spine) as client:
        yield client


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    """An idem.toml of the test's bank; its address is filled in by `desk`."""
    from fix_desk import CONFIGURATION

    file = tmp_path / "idem.toml"
    file.write_text(CONFIGURATION.replace("ORIGIN", "http://127.0.0.1:9"))
    return file


@pytest.fixture
def idem_toml(tmp_path: Path) -> Path:
    """The idem.toml of a shop (`adopt.shop`), whose provider is a ledger."""
    from adopt.shop import CONFIG

    path = tmp_path / "idem.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def variables(configuration: Path) -> dict[str, str]:
    """What a person has set, but for the database."""
    return {"IDEM_CONFIG": str(configuration), "BANK_TOKEN": "keyed-token", "IDEM_OPERATOR": "grace"}


@pytest.fixture
def environment(db_url: str, variables: dict[str, str]) -> dict[str, str]:
    """The same with the test's own database."""
    return variables | {"IDEM_DATABASE_URL": db_url}


@pytest.fixture
def desk(spine: Spine, configuration: Path, environment: dict[str, str]) -> Desk:
    """An operator's desk over this test's database and bank."""
    from fix_desk import CONFIGURATION, Desk

    configuration.write_text(CONFIGURATION.replace("ORIGIN", spine.bank.url))
    return Desk(spine, environment)
