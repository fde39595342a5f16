"""Renders every `unfrozen` row of a call, and commits the request's bytes before it may be sent: what was accepted by
SQL, a later step of a flow, and what goes back to work under a new provider key.

User code runs here, so in threads of its own and under a time limit, and it may raise anything: what cannot be rendered
is at rest with a dead letter, and never stops the others. Each row is locked while it is rendered, so two workers never
render one; a worker that dies meanwhile has committed nothing.
"""

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from idem.outbox.calls.user_code import in_a_thread, passed_on
from idem.outbox.daemon.pass_times import PassTime
from idem.outbox.daemon.retry import RetryLoop
from idem.outbox.database.pool import Database
from idem.outbox.domain import approval
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.outcomes import Seen
from idem.outbox.domain.states import KeyState, OutboxStatus, Reason
from idem.outbox.domain.transition import Change, DeadLetter, Evidence
from idem.outbox.observe import after_commit
from idem.outbox.settle import key_rotation, steps
from idem.outbox.settle.endings import at_rest
from idem.outbox.settle.gate import UNSTORABLE, write
from idem.outbox.settle.skipping import skipped
from idem.outbox.values import storable
from idem.outbox.worker import missing_steps
from idem.outbox.worker.idle_poll import IdlePoll
from idem.outbox.worker.rendering import Frozen, Made, Skipped, Unapproved, render
from idem.outbox.worker.unfrozen import Source, Unfrozen, pick, waits

BATCH = 20
"""Rows rendered in one transaction: they stay locked for as long as the slowest of them takes."""
TIME_LIMIT = 3.0
"""Seconds that an operation's code may take for one row: a session that waits for its lock meanwhile still gets it."""
THREADS = 20
"""Threads of one operation. While all of them hang its rows are left alone, and the others go on."""
LIGHT = 4096
"""Characters of params that are rendered beside others. What has more slows all threads down: one at a time."""
KEPT = 600.0
"""Seconds for which a result that came late is kept for its row."""
MISSING_EVERY = 60.0
"""Seconds between two searches for rows whose step no definition here has any more."""
CHECK_LIMIT = 60.0
"""Seconds that the check of params may take. It goes on without the lock of its row, which waits for it."""


@dataclass(slots=True, eq=False)
class Attempt:
    """The thread that renders a row. `checked`: when the operation's own code has begun."""

    provider_key: str
    ended: asyncio.Future[Frozen | Skipped | Unapproved] = field(init=False)
    began: float = field(default_factory=time.monotonic)
    checked: float | None = None

    def code_begins(self) -> None:
        self.checked = time.monotonic()


class Freezer:
    """Renders the `unfrozen` rows of the operations that this worker can send."""

    def __init__(self, database: Database, catalogue: Catalogue, *, time_limit: float = TIME_LIMIT) -> None:
        self._database = database
        self._catalogue = catalogue
        self._time_limit = time_limit
        self._running: Counter[str] = Counter()
        self._large = asyncio.Lock()
        self._late: dict[UUID, Attempt] = {}
        self._missing_held = -MISSING_EVERY
        self._after = uuid4().hex  # the tenant that was served last: each worker begins somewhere else
        self._retry = RetryLoop("worker freezing", doing="rendering rows that were accepted by SQL")
        self._sources = [
            Source(c.call, c.provider, c.account, catalogue.providers[c.provider].accounts[c.account].origin)
            for o in catalogue.operations.values()
            if o.kind == "provider"
            for c in o.calls
        ]

    async def run(
        self, stop: asyncio.Event, woken: asyncio.Event, due: PassTime, rendered: Callable[[], None], idle: IdlePoll
    ) -> None:
        """Render until `stop`, when `woken` and whenever the poll of the worker finds something for the pass `due`.

        `rendered` is called when rows may be sent.
        """
        idle.render(self._sources)
        polls = False

        async def step() -> None:
            nonlocal polls
            woken.clear()
            goes, polls = not polls or self._missing_due or await idle.finds_unfrozen(), False
            found, written, begun = await self._batch() if goes else (0, 0, False)
            self._retry.over()
            due.made()
            if written:
                rendered()
            if begun or _goes_on(found, written):
                return
            events = [asyncio.ensure_future(event.wait()) for event in (stop, woken)]
            awaited: list[asyncio.Future[Any]] = [e.ended for e in self._late.values() if not e.ended.done()]
            came, _ = await asyncio.wait([*events, *awaited], timeout=idle.wait(), return_when=asyncio.FIRST_COMPLETED)
            polls = not came
            for waiting in events:
                waiting.cancel()

        while not stop.is_set():
            await self._retry.attempt(step, stop)

    async def once(self) -> int:
        """Render everything that waits now; how many rows were frozen or put at rest."""
        done = 0
        while True:
            found, written, begun = await self._batch()
            done += written
            if not (begun or _goes_on(found, written)):
                return done

    @property
    def _missing_due(self) -> bool:
        return self._missing_held + MISSING_EVERY <= time.monotonic()

    async def _batch(self) -> tuple[int, int, bool]:
        """How many rows were found, and written, and whether a step may have begun in place of a skipped one."""
        sources = [source for source in self._sources if self._running[source.call] < THREADS]
        missing_due = self._missing_due
        if not sources and not missing_due:
            return 0, 0, False
        # The result for a row that was cancelled meanwhile is never used.
        kept = time.monotonic() - KEPT
        self._late = {row: each for row, each in self._late.items() if not each.ended.done() or each.began > kept}
        async with self._database.connection() as connection:
            if missing_due:
                async with after_commit.transaction(connection):
                    if await missing_steps.hold(connection, self._catalogue) < missing_steps.BATCH:
                        self._missing_held = time.monotonic()
            if not sources or not await waits(connection, sources):
                return 0, 0, False
            async with after_commit.transaction(connection):
                waiting, self._after = await pick(connection, self._catalogue, sources, after=self._after, limit=BATCH)
                # The last to begin has its time limit too, and a session that waits for a lock still gets it.
                ends = time.monotonic() + self._time_limit / 2
                made = await asyncio.gather(*(self._make(one, ends) for one in waiting))
                pairs = [(one, result) for one, result in zip(waiting, made, strict=True) if result is not None]
                begun = any(isinstance(result, Skipped) for _, result in pairs)
                written = await _write(connection, pairs)
                return len(waiting), written, begun and written > 0

    async def _make(self, one: Unfrozen, ends: float) -> Made | None:
        """What the operation's own code makes of a row; None: it waits on, because no thread is free, other large
        ones come first, or the check of its params takes longer than its lock may be held."""
        late = self._late.get(one.row.id)
        if late is not None and late.provider_key == one.provider_key:
            return self._result(one, late)
        if len(one.written) <= LIGHT:
            return await self._begin(one, self._time_limit)
        async with self._large:
            if time.monotonic() > ends or any(not other.ended.done() for other in self._late.values()):
                return None
            # Those beside it in its transaction do not wait until a long check ends.
            return await self._begin(one, self._time_limit / 12)

    async def _begin(self, one: Unfrozen, seconds: float) -> Made | None:
        name = one.row.call
        if self._running[name] >= THREADS:
            return None
        self._running[name] += 1
        attempt = Attempt(one.provider_key)
        attempt.ended = in_a_thread(
            partial(render, one, self._catalogue.providers[one.row.provider], attempt.code_begins)
        )
        attempt.ended.add_done_callback(lambda _: self._running.subtract([name]))
        await asyncio.wait([attempt.ended], timeout=seconds)
        return self._result(one, attempt, seconds)

    def _result(self, one: Unfrozen, attempt: Attempt, waited: float = 0.0) -> Made | None:
        since = attempt.began if attempt.checked is None else attempt.checked
        limit = CHECK_LIMIT if attempt.checked is None else self._time_limit
        # Of that wait the code has had what the check left. A start that is late by a tenth of it counts as at once.
        had = 1.1 * waited - (since - attempt.began)
        if not attempt.ended.done() and max(had, time.monotonic() - since) < limit:
            # The params are not to blame for a busy machine.
            self._late[one.row.id] = attempt
            return None
        self._late.pop(one.row.id, None)
        if attempt.ended.done():
            failed = attempt.ended.exception()
            return attempt.ended.result() if failed is None else passed_on(failed)
        what = "the check of the params" if attempt.checked is None else "it"
        return TimeoutError(f"{what} took longer than {limit:g} s")


def _goes_on(found: int, written: int) -> bool:
    """Whether there may be more to do at once: a whole batch, or rows of it that had to wait for others."""
    return bool(written) and (found == BATCH or written < found)


async def _write(connection: AsyncConnection[Any], pairs: Sequence[tuple[Unfrozen, Made]]) -> int:
    try:
        async with after_commit.transaction(connection):
            return await _write_whole(connection, pairs)
    except Locked:
        return 0 if len(pairs) == 1 else sum([await _write(connection, [pair]) for pair in pairs])
    except UNSTORABLE as error:
        if len(pairs) == 1:
            one, made = pairs[0]
            if not isinstance(made, Frozen):
                raise
            return await _write(connection, [(one, Unstorable(f"its request cannot be stored: {error}"))])
        # One of them cannot be stored, and must not hold up the others.
        return sum([await _write(connection, [pair]) for pair in pairs])


class Locked(Exception):
    """A row that was given its next key cannot be written now: both are undone, and it waits."""


class Unstorable(Exception):
    """What was rendered has something that PostgreSQL cannot hold."""


FREEZE = """
WITH input AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(frozen)s::json) AS i (
        id uuid, intent_id uuid, method text, path text, headers jsonb, body text, label text)
), named AS (
    UPDATE idem.intents n SET label = i.label FROM input i WHERE n.id = ANY (ARRAY[i.intent_id]) AND i.label IS NOT NULL
)
INSERT INTO idem.requests (outbox_id, generation, step, intent_id, provider_key, provider, account, method, path,
                           headers, body)
SELECT o.id, o.generation, o.step, o.intent_id, o.provider_key, o.provider, o.account, i.method, i.path, i.headers,
       decode(i.body, 'base64')
  FROM input i JOIN idem.outbox o ON o.id = ANY (ARRAY[i.id])
"""


async def _write_whole(connection: AsyncConnection[Any], pairs: Sequence[tuple[Unfrozen, Made]]) -> int:
    for one, made in pairs:
        if one.renewal is not None and isinstance(made, Frozen):
            await key_rotation.rekey(connection, one.row.id, one.renewal)
    written = await write(connection, [_change(one, made) for one, made in pairs])
    if any(o.renewal is not None and isinstance(made, Frozen) and o.row.id not in written for o, made in pairs):
        raise Locked
    frozen = [
        {
            "id": str(one.row.id),
            "intent_id": str(one.row.intent_id),
            "method": made.request.method,
            "path": made.request.path,
            "headers": dict(made.request.headers),
            "body": base64.b64encode(made.request.body).decode(),
            "label": made.label,
        }
        for one, made in pairs
        if isinstance(made, Frozen) and one.row.id in written
    ]
    if frozen:
        await connection.execute(FREEZE, {"frozen": json.dumps(frozen)})
    return len(written)


def _change(one: Unfrozen, made: Made) -> Change:
    row = one.row
    if isinstance(made, Skipped):
        return replace(skipped(row, made.rendered, one.terms), ruling=made.ruling, alone=True)
    change = Change(
        row.id, row.token, row.attempt, row.status, KeyState.IN_PROGRESS, Evidence("worker", "rendered"), alone=True
    )
    if isinstance(made, Unapproved):
        return steps.asking(change, row, made.ruling)
    if isinstance(made, Frozen):
        details = {} if one.renewal is None else one.renewal.details(row)
        # What is rendered is next by its ordering key.
        ready = approval.ruled(replace(row, frozen=True, key_burned=False, blocked=False), made.ruling)
        if ready.queued_as is OutboxStatus.APPROVAL:
            details |= approval.details(ready)
        evidence = replace(change.evidence, details=details)
        # Due from now on: a claim that found nothing begins behind what was due before it.
        return replace(change, status=ready.queued_as, ruling=made.ruling, evidence=evidence, due_in=0.0)
    said = storable.text(made, 500)
    evidence = Evidence("worker", "unrenderable", seen=Seen(error=type(made).__name__, note=said))
    letter = DeadLetter(Reason.UNRENDERABLE, {"operation": row.operation, "error": type(made).__name__, "note": said})
    return at_rest(replace(change, evidence=evidence), row, one.terms, letter)
