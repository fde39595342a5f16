"""Messages of PostgreSQL's logical replication, protocol version 1, as an outbox router's connector reads them."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """A row that was written, or what else happened to a table. `transaction` is the id of its transaction."""

    kind: str
    transaction: int
    table: str
    columns: dict[str, str | None]


class Decoder:
    """Reads messages in the order in which the server sends them."""

    def __init__(self) -> None:
        self._tables: dict[int, tuple[str, list[str]]] = {}
        self._transaction = 0

    def read(self, messages: Iterable[bytes]) -> Iterator[Change]:
        for message in messages:
            kind, body = chr(message[0]), message[1:]
            match kind:
                case "B":
                    self._transaction = struct.unpack("!I", body[16:20])[0]
                case "R":
                    self._relation(body)
                case "I":
                    (table,) = struct.unpack("!I", body[:4])
                    assert body[4:5] == b"N"
                    yield self._change("insert", table, body[5:])
                case "U" | "D" | "T":
                    yield Change({"U": "update", "D": "delete", "T": "truncate"}[kind], self._transaction, "", {})
                case "C" | "O" | "Y":
                    pass
                case _:
                    raise AssertionError(f"an unknown message {kind}")

    def _relation(self, body: bytes) -> None:
        (table,) = struct.unpack("!I", body[:4])
        schema, name, rest = body[4:].split(b"\0", 2)
        count = struct.unpack("!H", rest[1:3])[0]
        names, at = [], 3
        for _ in range(count):
            end = rest.index(b"\0", at + 1)
            names.append(rest[at + 1 : end].decode())
            at = end + 9
        self._tables[table] = (f"{schema.decode()}.{name.decode()}", names)

    def _change(self, kind: str, table: int, body: bytes) -> Change:
        name, names = self._tables[table]
        (count,) = struct.unpack("!H", body[:2])
        values: list[str | None] = []
        at = 2
        for _ in range(count):
            how, at = body[at : at + 1], at + 1
            if how == b"t":
                (length,) = struct.unpack("!I", body[at : at + 4])
                values.append(body[at + 4 : at + 4 + length].decode())
                at += 4 + length
            else:
                assert how == b"n", how
                values.append(None)
        return Change(kind, self._transaction, name, dict(zip(names, values, strict=True)))
