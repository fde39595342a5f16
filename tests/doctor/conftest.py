"""A desk, and a doctor who is called as a person calls him."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import psycopg
import pytest
from fix_desk import Desk

from idem.migrations import grants

Found: TypeAlias = list[dict[str, str]]

DAEMONS = """
INSERT INTO idem.daemons (id, kind, host, pid, seen_at, last_pass_at)
SELECT k || '-1', k, 'here', 1, now(), now() FROM unnest(ARRAY['worker', 'sweeper', 'reconciler']) AS k RETURNING 1
"""


def edit(configuration: Path, change: Callable[[str], str]) -> None:
    """Write another idem.toml."""
    configuration.write_text(change(configuration.read_text()))


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)  # type: ignore[call-overload]


@pytest.fixture
def role(db_url: str) -> Iterator[str]:
    """An ordinary role with a daemon's rights on this test's database, and pg_monitor's."""
    name = f"idem_doctor_{os.getpid()}"
    run(db_url, f"CREATE ROLE {name} NOSUPERUSER", *grants.statements(name, "daemon"), f"GRANT pg_monitor TO {name}")
    yield name
    run(db_url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.fixture
def as_daemon(desk: Desk, role: str) -> Desk:
    """The desk of somebody who works as that role."""
    url = desk.spine.url
    desk.environment["IDEM_DATABASE_URL"] = f"{url}{'&' if '?' in url else '?'}options={quote(f'-c role={role}')}"
    return desk


@dataclass
class Doctor:
    """Examines this test's installation. What it finds says what to do, unless it is in order."""

    desk: Desk

    async def finds(self, check: str, level: str, *texts: str, options: tuple[object, ...] = ()) -> dict[str, str]:
        """The one finding of this check, which has these texts."""
        (found,) = await self(check, options=options)
        assert found["level"] == level and all(text in found["what"] + found["do"] for text in texts), found
        return found

    async def __call__(self, *checks: str, options: tuple[object, ...] = ()) -> Found:
        """What these checks, or all, have found."""
        result = await self.desk.cli("doctor", "--json", *options)
        assert result.err == ""
        findings: Any = result.data["findings"]
        for each in findings:
            assert set(each) == {"check", "level", "what", "do"}
            assert each["what"] and (each["level"] == "ok") == (each["do"] == ""), each
        return [each for each in findings if not checks or each["check"] in checks]


@pytest.fixture
async def doctor(desk: Desk) -> Doctor:
    """Of an installation on which all daemons live."""
    await desk.spine.all(DAEMONS)
    return Doctor(desk)
