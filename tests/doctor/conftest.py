"""A desk, and a doctor who is called as a person calls him."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from fix_desk import Desk

Found: TypeAlias = list[dict[str, str]]
Doctor: TypeAlias = Callable[..., Awaitable[Found]]

DAEMONS = """
INSERT INTO idem.daemons (id, kind, host, pid, seen_at, last_pass_at)
SELECT k || '-1', k, 'here', 1, now(), now() FROM unnest(ARRAY['worker', 'sweeper', 'reconciler']) AS k RETURNING 1
"""


def edit(configuration: Path, change: Callable[[str], str]) -> None:
    """Write another idem.toml."""
    configuration.write_text(change(configuration.read_text()))


@pytest.fixture
async def doctor(desk: Desk) -> Doctor:
    """Examines this test's installation, on which all daemons live, and gives what he found about one thing.

    Whatever he finds says what to do, unless it is in order.
    """
    await desk.spine.all(DAEMONS)

    async def examine(*checks: str, options: tuple[object, ...] = ()) -> Found:
        result = await desk.cli("doctor", "--json", *options)
        assert result.err == ""
        findings: Any = result.data["findings"]
        for each in findings:
            assert set(each) == {"check", "level", "what", "do"}
            assert each["what"] and (each["level"] == "ok") == (each["do"] == ""), each
        return [each for each in findings if not checks or each["check"] in checks]

    return examine
