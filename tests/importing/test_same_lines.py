"""What an import writes is what it has checked: it reads a file twice, and the second reading gives the same lines."""

import os
from io import BytesIO
from pathlib import Path

import pytest
from fix_desk import Desk
from importing.lines import WHY, line, written

from idem.errors import OperatorRefused
from idem.outbox.importing import batches, takeover


def lines(count: int, first: int = 0) -> bytes:
    """Lines about payments that were never sent."""
    return written(*(line(f"k{n}", "queued") for n in range(first, first + count))).encode()


async def intents(desk: Desk) -> int:
    return int((await desk.spine.one("SELECT count(*) AS n FROM idem.intents"))["n"])


@pytest.mark.parametrize("options", [WHY, ("--dry-run",)])
async def test_a_pipe_is_refused(desk: Desk, options: tuple[str, ...]) -> None:
    """Its second reading is empty: nothing would be written, and it would look like a success."""
    read, write = os.pipe()
    try:
        os.write(write, lines(1))
        os.close(write)
        done = await desk.cli("import", f"/dev/fd/{read}", *options)
    finally:
        os.close(read)
    assert done.code == 2 and "is not a regular file" in done.err and "Traceback" not in done.err, done


async def test_a_named_pipe_is_refused_and_not_waited_for(desk: Desk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lines")
    done = await desk.cli("import", tmp_path / "lines", *WHY)
    assert done.code == 2 and "is not a regular file" in done.err, done


@pytest.mark.parametrize(
    "then",
    [
        b"",
        lines(1),
        b"\n" + lines(2),
        lines(1) + lines(1, first=7),
        lines(3),
    ],
    ids=["nothing", "fewer", "other numbers", "another", "more"],
)
async def test_other_lines_than_the_checked_ones_are_refused(desk: Desk, then: bytes) -> None:
    async with desk.spine.database.connection() as connection:
        found = await takeover.check(connection, desk.spine.catalogue, BytesIO(lines(2)))
        with pytest.raises(OperatorRefused, match="other lines than when they were checked"):
            await takeover.take_over(
                connection, desk.spine.catalogue, BytesIO(then), checked=found, by="ada", reason="moved"
            )
    assert await intents(desk) == 0


async def test_a_file_that_ends_early_is_no_success(desk: Desk) -> None:
    whole = lines(batches.BATCH + 5)
    async with desk.spine.database.connection() as connection:
        found = await takeover.check(connection, desk.spine.catalogue, BytesIO(whole))
        first = BytesIO(lines(batches.BATCH))
        with pytest.raises(OperatorRefused, match="stay unchanged"):
            await takeover.take_over(connection, desk.spine.catalogue, first, checked=found, by="ada", reason="moved")
        assert await intents(desk) == batches.BATCH
        again = await takeover.take_over(
            connection, desk.spine.catalogue, BytesIO(whole), checked=found, by="ada", reason="moved"
        )
    assert (again.already, dict(again.new)) == (batches.BATCH, {"queued": 5})
