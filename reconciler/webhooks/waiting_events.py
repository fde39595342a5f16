"""An event that waits, claimed in order to try it again; and the dead letter of one that fails."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import Database
from idem.outbox.domain.provider import Provider
from idem.outbox.domain.states import Reason
from idem.outbox.domain.webhook import Event
from idem.outbox.observe import after_commit, telemetry
from idem.outbox.settle import record
from idem.outbox.values import threads

LEASE: Final = 60.0
"""Seconds for which a claimed event is nobody else's; longer than an answer may take to render."""

FAILURES_THAT_NEED_A_PERSON: Final = 3


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """A claimed event. `tries`: how often it could not be applied, this try included; `age` in seconds.

    `place`: where among the events of its body it stands. `out_of_time`: as in `Delivery`.
    """

    id: UUID
    provider: str
    account: str
    event_id: str
    fate: str
    tries: int
    age: float
    intent_id: UUID | None
    body: bytes | None
    place: int = 0
    out_of_time: bool = False

    async def read(self, provider: Provider) -> Event | None:
        """What it says, read again by the contract as it is now; None where its body is gone or is none any more."""
        return await threads.read(self.body, partial(self._event, provider))

    def _event(self, provider: Provider) -> Event | None:
        read: Sequence[Event] = () if self.body is None else provider.read_events(self.body) or ()
        return read[self.place] if self.place < len(read) else None


STILL_WAITS = """
SELECT w.id FROM idem.webhook_events w
 WHERE w.id = %(id)s AND w.fate = %(fate)s AND w.tries = %(tries)s FOR UPDATE SKIP LOCKED
"""


async def still_waits(connection: AsyncConnection[Any], waiting: WaitingEvent) -> bool:
    """Whether it is as it was when it was claimed; locks it for the rest of the transaction."""
    guard = {"id": waiting.id, "fate": waiting.fate, "tries": waiting.tries}
    return await (await connection.execute(STILL_WAITS, guard)).fetchone() is not None


FAILED = """
UPDATE idem.webhook_events SET retry_at = statement_timestamp() + make_interval(secs => %(again)s) WHERE id = %(id)s
   AND retry_at IS NOT NULL
"""


async def failed(
    connection: AsyncConnection[Any], waiting: WaitingEvent, error: str, *, again: float, at_once: bool = False
) -> None:
    """Put a try off that has failed, with a dead letter if it was one too many (`at_once`: one is)."""
    async with after_commit.transaction(connection):
        await connection.execute(FAILED, {"id": waiting.id, "again": again})
        await bury(connection, waiting, error, at_once=at_once)


async def broken(database: Database, waiting: WaitingEvent, error: Exception, *, again: float) -> None:
    """Log a try that raised, and put it off. Raises what an unreachable database raises."""
    telemetry.broken("reconciler", error, f"asking about event {waiting.id}")
    async with database.connection() as connection:
        await failed(connection, waiting, f"{type(error).__name__}: {error}"[:500], again=again)


async def bury(connection: AsyncConnection[Any], waiting: WaitingEvent, error: str, *, at_once: bool = False) -> None:
    """The dead letter of an event that has failed often enough. It is tried on: what failed may be mended."""
    if waiting.intent_id is None or (waiting.tries < FAILURES_THAT_NEED_A_PERSON and not at_once):
        return
    details = {
        "provider": waiting.provider,
        "account": waiting.account,
        "event": waiting.event_id,
        "tries": waiting.tries,
        "error": error,
    }
    await record.bury(connection, waiting.intent_id, Reason.EVENT_FAILED, details, event=waiting.id)


CLOSE = """
UPDATE idem.dead_letters
   SET resolved_at = statement_timestamp(), resolution = 'webhook_' || %(how)s::text, resolved_by = current_user,
       note = 'the event could be applied after all'
 WHERE webhook_event_id = %(id)s AND resolved_at IS NULL
"""


async def close(connection: AsyncConnection[Any], event_row: UUID, how: str) -> None:
    """Close the open dead letter of an event that has found its call and its end."""
    await connection.execute(CLOSE, {"id": event_row, "how": how})
