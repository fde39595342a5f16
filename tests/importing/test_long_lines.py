"""A file of any size is read in pieces: no line and no batch takes more memory than the limit of a line allows."""

from io import BytesIO
from pathlib import Path

import pytest
from fix_desk import Desk
from importing.lines import line, taken, written

from idem.outbox.importing import batches, records, takeover


class Counted(BytesIO):
    """A file that counts what is read at once."""

    largest = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None and size > 0, "a line without end would be read whole"
        read = super().readline(size)
        self.largest = max(self.largest, len(read))
        return read


@pytest.mark.parametrize("times", [1, 4, 16])
async def test_of_a_line_that_is_too_long_its_start_is_read_and_the_next_line_counts(desk: Desk, times: int) -> None:
    file = Counted(b"x" * (times * (records.LINE_LIMIT + 2)) + b"\n" + written(line("k1", "queued")).encode())
    found = await desk.spine.run(takeover.check, desk.spine.catalogue, file)
    assert (found.lines, found.wrong, dict(found.new)) == (2, 1, {"queued": 1})
    assert "line 1: it has more than 16777216 bytes" in str(found.errors[0])
    assert file.largest <= records.LINE_LIMIT + 2


async def test_a_batch_holds_a_line_more_than_the_limit_of_a_line(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines of whatever size: at n and 4n lines the largest batch is the same."""
    monkeypatch.setattr(batches, "BATCH_BYTES", 4_000)
    for count in (10, 40):
        told = {"status": 201, "body": "a" * 1_000}
        file = BytesIO(written(*(line(f"k{n}", answer=told) for n in range(count))).encode())
        found = await desk.spine.run(takeover.check, desk.spine.catalogue, file)
        assert (found.lines, found.wrong) == (count, 0)
        assert len(found.digests) == -(-count // 4)


async def test_what_is_told_about_a_line_does_not_quote_it_whole(desk: Desk, tmp_path: Path) -> None:
    done = await taken(desk, tmp_path, line(operation="o" * 2**20), options=("--dry-run",))
    assert done.code == 1 and "line 1: operation: no operation 'ooo" in done.err
    assert len(done.err) < 2_000
