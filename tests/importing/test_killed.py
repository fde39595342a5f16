"""An import that is killed while it writes is run again, and every line is taken over once."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from fix_desk import Desk
from importing.lines import line, written

LINES = 800


@pytest.mark.quick
async def test_an_import_that_was_killed_is_run_again(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "outbox.jsonl"
    lines = (line(f"k{n}", params={"amount": n + 1}, answer={"status": 201, "body": f"paid {n}"}) for n in range(LINES))
    file.write_text(written(*lines))
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "idem.cli.main", "import", str(file), "--reason", "moved", "--yes",
        env=os.environ | desk.environment,
    )  # fmt: skip
    async with asyncio.timeout(120):
        while not await count(desk):
            assert running.returncode is None, "it ended and has written nothing"
            await asyncio.sleep(0.02)
    running.kill()
    await running.wait()
    before = await count(desk)
    assert 0 < before < LINES and before % 200 == 0, "whole transactions, and not all of them"
    done = await desk.cli("import", file, "--reason", "moved", "--yes", "--json")
    assert done.code == 0, done
    assert (done.data["new"], done.data["already"]) == ({"completed": LINES - before}, before)
    assert await count(desk) == LINES
    seen = await desk.spine.one(
        "SELECT count(*) AS lines, count(DISTINCT details ->> 'line') AS once FROM idem.evidence"
        " WHERE kind = 'imported'"
    )
    assert (seen["lines"], seen["once"]) == (LINES, LINES)


async def count(desk: Desk) -> int:
    """Keys that are there."""
    return int((await desk.spine.one("SELECT count(*) AS n FROM idem.idempotency_keys"))["n"])
