"""A file of any size is read in pieces: no line and no batch takes more memory than the limit of a line allows."""

import json
from io import BytesIO
from pathlib import Path

import pytest
from fix_desk import Desk

from idem.outbox.importing import batches, records, takeover


class Counted(BytesIO):
    """A file that counts what is read at once."""

    largest = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None and size > 0, "a line without end would be read whole"
        read = super().readline(size)
        self.largest = max(self.largest, len(read))
        return read


def queued(key: str, **more: object) -> dict[str, object]:
    """A line about a payment that was never sent."""
    return {"tenant": "t", "operation": "pay.keyed", "key": key, "params": {"amount": 100}, "state": "queued"} | more


async def check(desk: Desk, file: BytesIO) -> takeover.ImportReport:
    async with desk.spine.database.connection() as connection:
        return await takeover.check(connection, desk.spine.catalogue, file)


@pytest.mark.parametrize("times", [1, 4, 16])
async def test_of_a_line_that_is_too_long_its_beginning_is_read_and_the_next_line_counts(
    desk: Desk, times: int
) -> None:
    line = json.dumps(queued("k1")).encode()
    file = Counted(b"x" * (times * (records.LINE_LIMIT + 2)) + b"\n" + line + b"\n")
    found = await check(desk, file)
    assert (found.lines, found.wrong, dict(found.new)) == (2, 1, {"queued": 1})
    assert "line 1: it has more than 16777216 bytes" in str(found.errors[0])
    assert file.largest <= records.LINE_LIMIT + 2


async def test_a_batch_holds_one_line_more_than_the_limit_of_a_line(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many lines of whatever size: at n and 4n lines the largest batch is the same."""
    monkeypatch.setattr(batches, "BATCH_BYTES", 4_000)
    for count in (10, 40):
        told = {"status": 201, "body": "a" * 1_000}
        file = BytesIO(b"".join(
            json.dumps(queued(f"k{n}", state="completed", answer=told)).encode() + b"\n" for n in range(count)
        ))  # fmt: skip
        found = await check(desk, file)
        assert (found.lines, found.wrong) == (count, 0)
        assert len(found.digests) == -(-count // 4)


async def test_what_is_told_about_a_line_does_not_quote_it_whole(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(json.dumps(queued("k1", operation="o" * 2**20)) + "\n")
    done = await desk.cli("import", tmp_path / "lines", "--dry-run")
    assert done.code == 1 and "line 1: operation: no operation 'ooo" in done.err
    assert len(done.err) < 2_000
