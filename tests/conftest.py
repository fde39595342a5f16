"""Fixtures by subject: `fix_database` (servers, clones), `fix_spine` (operations, a bank), `fix_api` (HTTP)."""

import os
import signal
from collections.abc import Iterator

import pytest
import structlog
from fix_api import api  # noqa: F401
from fix_database import database, db_url, server, superuser_url, template  # noqa: F401
from fix_restore import restorable  # noqa: F401
from fix_spine import spine  # noqa: F401

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
    structlog.reset_defaults()
