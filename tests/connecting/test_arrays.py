"""Arrays that are packed here arrive as those that psycopg packs, and jsonb is read as psycopg reads it."""

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from idem.outbox.database import arrays
from idem.outbox.database.pool import Database

IDS = [uuid4(), UUID(int=0), None]
ROWS: list[tuple[str, Any, list[Any]]] = [
    ("uuid[]", arrays.uuids, IDS),
    ("uuid[]", arrays.uuids, IDS[:2]),
    ("text[]", arrays.texts, ["a", "", None, "ä€😀", 'NULL "quoted", {}\\']),
    ("bytea[]", arrays.byteas, [b"", b"\x00\xff", None]),
    ("smallint[]", arrays.smallints, [0, -32768, 32767]),
    ("smallint[]", arrays.smallints, [None, 201, None]),
    ("integer[]", arrays.integers, [1, -(2**31), 2**31 - 1]),
    ("integer[]", arrays.integers, [None]),
    ("float8[]", arrays.floats, [0.1, -1e308, float("inf"), 3.0]),
    ("float8[]", arrays.floats, [1.5, None]),
    ("text[]", arrays.texts, []),
    ("uuid[]", arrays.uuids, []),
]


@pytest.mark.parametrize(("kind", "pack", "values"), ROWS)
async def test_an_array_arrives_as_it_is(database: Database, kind: Any, pack: Any, values: list[Any]) -> None:
    async with database.connection() as connection:
        cursor = await connection.execute(
            f"SELECT %(a)b, pg_typeof(%(a)b)::text, %(b)s::{kind}", {"a": pack(values), "b": values}
        )
        packed, name, usual = await cursor.fetchone() or ()
    assert packed == usual == values
    assert name == kind.replace("float8", "double precision")


async def test_what_is_no_integer_of_that_size_is_refused_here() -> None:
    with pytest.raises(Exception, match="format requires"):
        arrays.smallints([32768])


async def test_a_text_with_a_nul_is_refused_by_the_server(database: Database) -> None:
    async with database.connection() as connection:
        with pytest.raises(psycopg.DataError):
            await connection.execute("SELECT %(a)b", {"a": arrays.texts(["a\0b"])})


@pytest.mark.parametrize(
    "value", ["{}", '{"a": [1, 2.5, null, true, "ä\\u20ac\\"", 12345678901234567890]}', "3", '"x"']
)
async def test_jsonb_is_read_as_ever(database: Database, value: str) -> None:
    async with database.connection() as connection:
        cursor = connection.cursor(binary=True)
        await cursor.execute("SELECT %(v)s::jsonb", {"v": value})
        ours = await cursor.fetchone()
        await cursor.execute("SELECT %(v)s::json", {"v": value})
        assert ours == await cursor.fetchone()
