"""The rows of a test's database: each query and each change has its own connection."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from psycopg.rows import dict_row

from idem.outbox.database.pool import Database
from idem.testing import stepping

Given = ParamSpec("Given")
Made = TypeVar("Made")


@dataclass
class Tables:
    """Queries and changes. `advance` moves every time of every row into the past, as if it had passed."""

    database: Database

    async def run(
        self, function: Callable[Concatenate[Any, Given], Awaitable[Made]], *args: Given.args, **named: Given.kwargs
    ) -> Made:
        """Call this function with a connection; returns its result."""
        async with self.database.connection() as connection:
            return await function(connection, *args, **named)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass for every row."""
        await self.run(stepping.advance, seconds)

    async def all(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        async with self.database.connection() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            return await (await cursor.execute(sql, parameters)).fetchall()

    async def one(self, sql: str, **parameters: Any) -> dict[str, Any]:
        rows = await self.all(sql, **parameters)
        assert len(rows) == 1, rows
        return rows[0]

    async def lacks(self, rows: str, **parameters: Any) -> bool:
        """Whether there is no such row; `rows` begins with FROM."""
        return not await self.all(f"SELECT {rows}", **parameters)

    async def value(self, sql: str, **parameters: Any) -> Any:
        (only,) = (await self.one(sql, **parameters)).values()
        return only

    async def column(self, sql: str, **parameters: Any) -> list[Any]:
        """The first value of every row."""
        return [next(iter(row.values())) for row in await self.all(sql, **parameters)]

    async def execute(self, sql: str, parameters: Any = None, **named: Any) -> None:
        async with self.database.connection() as connection:
            await connection.execute(sql, parameters or named or None)

    async def forced(self, sql: str, **parameters: Any) -> None:
        """Change rows past the guards: for states that need hours, a crash or another release."""
        async with self.database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(sql, parameters)

    async def row(self, intent: UUID) -> dict[str, Any]:
        return await self.one("SELECT * FROM idem.outbox WHERE intent_id = %(i)s", i=intent)

    async def row_if_any(self, intent: UUID) -> dict[str, Any] | None:
        rows = await self.all("SELECT * FROM idem.outbox WHERE intent_id = %(i)s", i=intent)
        return rows[0] if rows else None

    async def key(self, intent: UUID) -> dict[str, Any]:
        return await self.one("SELECT * FROM idem.idempotency_keys WHERE intent_id = %(i)s", i=intent)

    async def letters(self, intent: UUID, *, open: bool = True) -> list[str]:
        return await self.column(
            "SELECT reason FROM idem.dead_letters WHERE intent_id = %(i)s AND (resolved_at IS NULL) = %(o)s"
            " ORDER BY reason", i=intent, o=open,
        )  # fmt: skip

    async def events(self, intent: UUID) -> list[str]:
        """The types of its events, in order."""
        return await self.column("SELECT type FROM idem.events WHERE aggregateid = %(i)s ORDER BY number", i=intent)

    async def evidence(self, intent: UUID) -> list[tuple[str, str, str | None]]:
        rows = await self.all(
            "SELECT source, kind, outcome FROM idem.evidence WHERE intent_id = %(i)s ORDER BY id", i=intent
        )
        return [(row["source"], row["kind"], row["outcome"]) for row in rows]

    async def expect(self, intent: UUID, **expected: Any) -> None:
        """Check these columns of the row of this intent.

        `state` is the intent's, `key` the state of its key and `answer` the HTTP status stored there, `letters` its
        open dead letters, `events` the types of its events, `proofs` the number of stored proofs of all calls. Without
        a row the status is None.
        """
        found = await self.row_if_any(intent) or {"status": None}
        if "state" in expected:
            found["state"] = await self.value("SELECT state FROM idem.intents WHERE id = %(i)s", i=intent)
        if {"key", "answer"} & expected.keys():
            key = await self.key(intent)
            found |= {"key": key["state"], "answer": key["response_status"]}
        if "letters" in expected:
            found["letters"] = await self.letters(intent)
        if "events" in expected:
            found["events"] = await self.events(intent)
        if "proofs" in expected:
            found["proofs"] = await self.value("SELECT count(*) FROM idem.proofs")
        assert {name: found.get(name, "no row") for name in expected} == expected
