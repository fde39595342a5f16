"""What an installation costs that has nothing to do: `idem run`, with and without --single-process.

pytest tests/group/measure_idle.py -s          # IDEM_SECONDS=60 for each of the two

Memory that is theirs (PSS), their share of a core, connections, and transactions a second of the database. Figures
for reading, on a machine that does nothing else; no test asserts them.
"""

import asyncio
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from fix_desk import Desk
from fix_group import alive, authorized, running
from fix_spine import Spine
from fix_waiting import until

SECONDS = float(os.environ.get("IDEM_SECONDS", "60"))
KINDS = {"worker", "sweeper", "reconciler", "api"}


def mebibytes(pid: int) -> float:
    [kilobytes] = re.findall(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(kilobytes) / 1024


def busy(pid: int) -> float:
    """Seconds of a core so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def transactions(spine: Spine) -> int:
    row = await spine.one(
        "SELECT xact_commit + xact_rollback AS n FROM pg_stat_database WHERE datname = current_database()"
    )
    return int(row["n"])


async def connections(spine: Spine) -> Counter[str]:
    rows = await spine.all(
        "SELECT application_name AS name FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'idem %%' AND pid <> pg_backend_pid()"
    )
    return Counter(row["name"] for row in rows)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("options", [(), ("--single-process",)], ids=["processes", "single"])
async def test_idle(desk: Desk, unused_tcp_port: int, linux: None, options: tuple[str, ...]) -> None:
    await authorized(desk)
    async with running(desk, unused_tcp_port, *options) as command:
        await until(lambda: alive(desk, KINDS))
        await asyncio.sleep(10)
        pids = [command.pid, *command.children().values()]
        before, worked = await transactions(desk.spine), sum(map(busy, pids))
        await asyncio.sleep(SECONDS)
        # The statistics of a session that idles are written within a second.
        rate = (await transactions(desk.spine) - before) / SECONDS
        held = await connections(desk.spine)
        sys.stdout.write(
            f"\n{len(pids)} processes, {sum(map(mebibytes, pids)):.0f} MiB, "
            f"{100 * (sum(map(busy, pids)) - worked) / SECONDS:.1f} % of a core, {rate:.1f} transactions a second, "
            f"{held.total()} connections: {dict(sorted(held.items()))}\n"
        )
        assert await command.stop() == 0
