"""A statement that each connection prepares once and runs in one round trip, in few steps of the loop.

psycopg's cursor does the same by a lock, a generator and two tasks' worth of waits, which cost the API's process more
than the rest of a request. What is sent, what comes back and what an error means is the same.
"""

import asyncio
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.adapt import Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from idem.outbox.database.bounded import BoundedConnection, cut
from idem.outbox.values.sql_parameters import numbered

Value = Callable[[bytes], Any]
READERS: Final[Mapping[int, Value]] = {
    16: lambda value: value == b"t",
    17: lambda value: bytes.fromhex(value[2:].decode()),
    20: int,
    21: int,
    23: int,
    25: bytes.decode,
    114: bytes.decode,
    701: float,
    2950: lambda value: UUID(value.decode()),
    3802: bytes.decode,
}
"""How the texts of the commonest types are read, by their numbers in pg_type: those of JSON stay text."""


class PreparedStatement:
    """A statement with `:name` parameters, under a name of its own."""

    def __init__(self, name: str, statement: str) -> None:
        sql, self._names = numbered(statement)
        self.name, self.sql = name.encode(), sql.encode()
        self._row: Callable[..., Any] | None = None
        self._readers: list[Value] = []

    async def row(self, connection: BoundedConnection, values: Mapping[str, Any], seconds: float) -> Any:
        """Run it and give its first row, the columns by name; None: there is none.

        Raises what psycopg raises, and DatabaseAway after `seconds` without an answer. Who is cancelled meanwhile does
        not know what became of it: the connection is cut.
        """
        sent = [_written(values[name]) for name in self._names]
        formats = [Format.BINARY if type(each) is bytes else Format.TEXT for each in map(values.get, self._names)]
        result = await connection.answered(self._run(connection, sent, formats), seconds)
        return self._read(result) if result.ntuples else None

    async def _run(self, connection: BoundedConnection, sent: list[bytes | None], formats: list[Format]) -> PGresult:
        line = connection.pgconn
        if self.name in connection.prepared:
            try:
                return await _answer(connection, lambda: line.send_query_prepared(self.name, sent, formats))
            except InvalidSqlStatementName:
                pass  # psycopg takes back all that is prepared after a ROLLBACK: nothing was run
        await _answer(connection, lambda: line.send_prepare(self.name, self.sql))
        connection.prepared.add(self.name)
        return await _answer(connection, lambda: line.send_query_prepared(self.name, sent, formats))

    def _read(self, result: PGresult) -> Any:
        if self._row is None:
            columns = range(result.nfields)
            self._readers = [_reader(result.ftype(each)) for each in columns]
            names = [(result.fname(each) or b"").decode() for each in columns]
            kind: Any = namedtuple("Row", names)  # type: ignore[misc]
            self._row = kind._make
        return self._row(
            None if (value := result.get_value(0, column)) is None else read(value)
            for column, read in enumerate(self._readers)
        )


def _reader(kind: int) -> Value:
    return READERS.get(kind) or Transformer().get_loader(kind, Format.TEXT).load


def _written(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if type(value) is bool:
        return b"t" if value else b"f"
    text = str(value).encode()
    if b"\0" in text:
        # libpq would end the text there.
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text


async def _answer(connection: BoundedConnection, send: Callable[[], None]) -> PGresult:
    """Send this, and wait for its whole answer. Raises the error that the answer is."""
    loop, line = asyncio.get_running_loop(), connection.pgconn
    here: asyncio.Future[None] = loop.create_future()
    results: list[PGresult] = []

    def over(error: Exception | None) -> None:
        # At once: libpq closes the socket of a line that is lost, and the next connection may have its number.
        loop.remove_reader(at)
        loop.remove_writer(at)
        if here.done():
            return
        if error is None:
            here.set_result(None)
        else:
            here.set_exception(error)

    def readable() -> None:
        try:
            line.consume_input()
            while not line.is_busy():
                if (result := line.get_result()) is None:
                    over(None)
                    return
                results.append(result)
        except Exception as error:
            over(error)

    def writable() -> None:
        try:
            if not line.flush():
                loop.remove_writer(at)
        except Exception as error:
            over(error)

    send()
    unsent, at = line.flush(), line.socket
    if unsent:
        loop.add_writer(at, writable)  # more than the kernel takes at once
    loop.add_reader(at, readable)
    try:
        await here
    except asyncio.CancelledError:
        over(None)
        cut(connection)
        raise
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result, connection.info.encoding)
    return results[0]
