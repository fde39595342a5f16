"""The log file: append, and group commit.

`write` passes the lines to the operating system in one call, so that a SIGKILL of the bank cannot lose them. `sync`
returns after an fsync that began after the call; concurrent callers share one fsync.
"""

import asyncio
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from idem.testing.bank.errors import LogInUse
from idem.testing.bank.records import Record, from_line, to_line


class Ledger:
    """All records, in order: those of earlier runs and of this one. Only the loop's thread uses it, except `records`,
    which other threads may copy."""

    def __init__(self, path: Path | None, *, durable: bool) -> None:
        self.records: list[Record] = []
        self._path = path
        self._durable = durable
        self._fd: int | None = None
        self._failure: OSError | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="bank-fsync")

    def open(self) -> None:
        """Lock the file, read its records, cut off a torn last line.

        Raises:
            LogInUse: another bank has locked it.
            LogCorrupt: a line cannot be read.
            OSError: the file cannot be opened.
        """
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = self._path.read_bytes()
            whole = content.rfind(b"\n") + 1
            self.records = read_records(content[:whole])
            if whole < len(content):
                os.ftruncate(fd, whole)
            if self._durable:
                os.fsync(fd)
                self._sync_folder()
        except BlockingIOError as error:
            os.close(fd)
            raise LogInUse(f"another bank writes to {self._path}") from error
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def write(self, *records: Record) -> None:
        """Append the records, all or (if the process dies here) none of them.

        Raises:
            OSError: the file system refuses; the bank must then stop answering, and `sync` raises for all callers.
        """
        if self._fd is not None:
            if self._failure is not None:
                raise self._failure
            lines = b"".join(map(to_line, records))
            try:
                written = os.write(self._fd, lines)
                if written != len(lines):
                    raise OSError(f"short write to {self._path}")
            except OSError as error:
                self._failure = error
                raise
        self.records.extend(records)

    async def sync(self) -> None:
        """Wait until everything that was written before is on disk.

        Raises:
            OSError: it may not be. After a failed fsync the kernel may have dropped the pages, so every later call
                raises too.
        """
        if self._failure is not None:
            raise self._failure
        if self._fd is None or not self._durable:
            return
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(self._fd))
        await asyncio.shield(self._waiting)
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Sync and close the file."""
        if self._flushing is not None:
            await self._flushing
        self._executor.shutdown()
        if self._fd is not None:
            try:
                if self._durable and self._failure is None:
                    os.fsync(self._fd)
            finally:
                os.close(self._fd)
                self._fd = None

    async def _flush(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        while (waiting := self._waiting) is not None:
            self._waiting = None
            try:
                await loop.run_in_executor(self._executor, os.fsync, fd)
            except OSError as error:
                self._failure = error
            waiting.set_result(None)
        self._flushing = None

    def _sync_folder(self) -> None:
        assert self._path is not None
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_records(content: bytes) -> list[Record]:
    """The records of whole lines.

    Raises:
        LogCorrupt: a line cannot be read.
    """
    return [from_line(line, number) for number, line in enumerate(content.splitlines(), 1)]
