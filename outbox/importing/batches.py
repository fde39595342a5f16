"""Reads the lines of an import in batches that fit in memory."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from idem.outbox.importing.records import LINE_LIMIT

BATCH = 200
"""Most lines of one transaction."""
BATCH_BYTES = LINE_LIMIT
"""Most bytes of these lines, and one line more: they are read at once and stay in memory."""


def digest(batch: Sequence[tuple[int, bytes]]) -> bytes:
    """The hash of a batch, by which a second reading knows that the file has the same lines."""
    found = hashlib.sha256()
    for number, text in batch:
        found.update(b"%d:%d:" % (number, len(text)) + text)
    return found.digest()


def batches(file: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """The lines that are not blank, numbered from 1, in batches of `BATCH` lines or about `BATCH_BYTES` bytes."""
    batch: list[tuple[int, bytes]] = []
    size = 0
    for number, text in enumerate(_lines(file), 1):
        if not text.strip():
            continue
        batch.append((number, text))
        size += len(text)
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines. Of a line that is too long it yields only the beginning, which is too long too."""
    while text := file.readline(LINE_LIMIT + 2):
        whole = text.endswith(b"\n")
        yield text
        while not whole and (rest := file.readline(2**20)):
            whole = rest.endswith(b"\n")
