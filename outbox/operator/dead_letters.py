"""Dead letters that an operator closes alone, if the intent itself has nothing left to settle."""

import json
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.states import KeyState, Reason
from idem.outbox.handlers import stopped
from idem.outbox.settle.record import note_operator
from idem.outbox.values import storable
from idem.outbox.values.errors import OperatorRefused
from idem.outbox.values.plural import several

CLOSED_ALONE: Final = frozenset(
    {Reason.CONFLICT, Reason.POSSIBLE_DUPLICATE, Reason.DISCREPANCY, Reason.ANSWER_FAILED, Reason.EVENT_FAILED}
)
"""Reasons that concern an intent but do not ask for a change of its state."""

WORDS: Final = 2000
"""Most characters of a reason that are kept."""


def check_named(by: str, reason: str) -> None:
    """Raises OperatorRefused unless the act has a name and a reason."""
    if not by.strip():
        raise OperatorRefused("say who you are: idem records who did it")
    if not reason.strip():
        raise OperatorRefused("say why: idem records the reason")


DEAD_LETTER = """
SELECT d.id, d.intent_id, d.webhook_event_id, d.reason, d.details, d.seen, d.resolved_at, d.resolution, d.resolved_by,
       n.state, n.version
  FROM idem.dead_letters d LEFT JOIN idem.intents n ON n.id = ANY (ARRAY[d.intent_id])
 WHERE d.id = %(letter)s
"""
LOCK_INTENT = "SELECT FROM idem.intents WHERE id = %(intent)s FOR NO KEY UPDATE"
# This lock comes first, because a retry of the event holds it when it reaches the intent and the entry.
LOCK_EVENT = "SELECT FROM idem.webhook_events WHERE id = %(event)s FOR UPDATE"
# Not for a hint whose call waits for it: only an operator who is sure about that call may let it continue.
GIVE_UP = """
WITH dropped AS (
    DELETE FROM idem.proofs p
     WHERE p.id = %(event)s AND p.outcome = 'hint'
       AND (SELECT w.fate = 'hint' AND w.out_of_time
                   AND (SELECT o.id FROM idem.outbox o WHERE o.id = w.outbox_id LIMIT 1) IS NULL
              FROM idem.webhook_events w WHERE w.id = %(event)s)
)
UPDATE idem.webhook_events w SET fate = 'noted', retry_at = NULL
 WHERE w.id = %(event)s
   AND (w.fate IN ('deferred', 'early')
        OR w.fate = 'hint' AND w.out_of_time
           AND (SELECT o.id FROM idem.outbox o WHERE o.id = w.outbox_id LIMIT 1) IS NULL)
"""


async def close_dead_letter(
    connection: AsyncConnection[Any], letter: UUID, *, by: str, reason: str, version: int, seen: int
) -> Reason:
    """Resolve an entry about an intent, and nothing else; the reason is its note.

    An event that could not be applied or delivered is given up with its entry; otherwise the entry would come back.
    `seen` is how often it had occurred when the operator looked: after a new occurrence the action is refused, as after
    a change of the version. Raises OperatorRefused.
    """
    check_named(by, reason)
    async with connection.transaction():
        found = await _read(connection, letter)
        _not_of_a_handler(found)
        if found.intent_id is None:
            raise OperatorRefused(f"dead letter {letter} does not concern an intent: use `idem dlq discard`")
        await connection.execute(LOCK_EVENT, {"event": found.webhook_event_id})
        await connection.execute(LOCK_INTENT, {"intent": found.intent_id})
        found = await _read(connection, letter)
        if found.version != version or found.seen != seen:
            raise OperatorRefused(
                f"dead letter {letter} changed after you read it (version {found.version}, seen "
                f"{several(found.seen, 'time')}): read it again, then decide"
            )
        if why := against_closing(Reason(found.reason), KeyState(found.state)):
            raise OperatorRefused(why)
        await _resolve_open(connection, letter, "closed", by, reason)
        details = {"by": by, "reason": storable.text(reason, WORDS), "dead_letter": str(letter), "about": found.reason}
        if found.reason == Reason.EVENT_FAILED:
            given_up = await connection.execute(GIVE_UP, {"event": found.webhook_event_id})
            details |= {"event_given_up": str(found.webhook_event_id)} if given_up.rowcount else {}
        await note_operator(connection, found.intent_id, "dead_letter_closed", details)
        return Reason(found.reason)


async def discard(connection: AsyncConnection[Any], letter: UUID, *, by: str, reason: str, seen: int) -> Reason:
    """Resolve an entry that concerns no intent. An intent is settled, never discarded (P1). Raises OperatorRefused."""
    check_named(by, reason)
    async with connection.transaction():
        found = await _read(connection, letter)
        _not_of_a_handler(found)
        if found.intent_id is not None:
            raise OperatorRefused(
                f"dead letter {letter} concerns intent {found.intent_id}, which would stay unsettled and no longer be "
                "listed: use `idem dlq resolve` or `idem dlq redrive`"
            )
        _check_seen(found, seen)
        await _resolve_open(connection, letter, "discarded", by, reason)
        return Reason(found.reason)


# The entry records who asked for it, because there is no intent with a timeline.
TRY_EVENT = """
UPDATE idem.webhook_events SET retry_at = statement_timestamp()
 WHERE id = %(event)s AND fate IN ('unmatched', 'foreign')
"""
NOTE_TRY = "UPDATE idem.dead_letters SET details = details || %(details)s::jsonb WHERE id = %(letter)s"


async def try_event_again(connection: AsyncConnection[Any], letter: UUID, *, by: str, reason: str, seen: int) -> Reason:
    """Make the reconciler look immediately for the call that an unmatched event is about; a match closes the entry.

    It reads the event by the current contract, so a corrected pointer counts. Raises OperatorRefused.
    """
    check_named(by, reason)
    async with connection.transaction():
        found = await _read(connection, letter)
        if found.reason != Reason.UNMATCHED_WEBHOOK:
            raise OperatorRefused(f"dead letter {letter} does not concern an event that matches no call")
        _check_seen(found, seen)
        tried = await connection.execute(TRY_EVENT, {"event": found.webhook_event_id})
        if tried.rowcount != 1:
            raise OperatorRefused(
                f"the event of dead letter {letter} is no longer kept: `idem dlq discard` closes the entry"
            )
        said = storable.fields({"tried_by": by, "tried_why": storable.text(reason, WORDS)})
        await connection.execute(NOTE_TRY, {"letter": letter, "details": json.dumps(said)})
        return Reason(found.reason)


def _not_of_a_handler(found: Any) -> None:
    if found.reason == Reason.HANDLER_FAILED:
        raise OperatorRefused(
            f"dead letter {found.id} is an event that a handler could not process: `idem dlq redrive` runs it again, "
            "`idem dlq resolve --as closed` skips it"
        )


async def run_again(connection: AsyncConnection[Any], letter: UUID, *, by: str, reason: str, seen: int) -> Reason:
    """Run a handler again for the event that it could not handle, as if it had never failed; then for the later events.

    `seen` as in `close_dead_letter`.
    """
    return await _of_handler(connection, letter, by=by, reason=reason, seen=seen, skip=False)


async def skip_event(connection: AsyncConnection[Any], letter: UUID, *, by: str, reason: str, seen: int) -> Reason:
    """Skip an event that a handler could not handle: the handler never gets it, and the later events continue."""
    return await _of_handler(connection, letter, by=by, reason=reason, seen=seen, skip=True)


async def _of_handler(
    connection: AsyncConnection[Any], letter: UUID, *, by: str, reason: str, seen: int, skip: bool
) -> Reason:
    check_named(by, reason)
    async with connection.transaction():
        found = await _read(connection, letter)
        if found.reason != Reason.HANDLER_FAILED:
            raise OperatorRefused(f"dead letter {letter} does not concern a handler of settled intents")
        _check_seen(found, seen)
        moved = await (stopped.skip if skip else stopped.resume)(connection, letter)
        how = "handler_skipped" if skip else "handler_redriven"
        await _resolve_open(connection, letter, how, by, reason)
        details = {"by": by, "reason": storable.text(reason, WORDS), "dead_letter": str(letter), **found.details}
        if moved is not None:
            await note_operator(connection, moved, how, details)
        return Reason(found.reason)


def against_closing(reason: Reason, state: KeyState) -> str | None:
    """Why this entry cannot be closed by itself; None: it can."""
    if reason not in CLOSED_ALONE:
        return f"a dead letter `{reason}` asks for its intent to be settled: resolve, redrive or cancel the intent"
    if state is KeyState.UNKNOWN and reason in (Reason.CONFLICT, Reason.POSSIBLE_DUPLICATE):
        return (
            "its intent is unknown: resolve the intent as completed or failed_retryable, which also closes this entry"
        )
    return None


async def check_open(connection: AsyncConnection[Any], letter: UUID | None, intent: UUID) -> None:
    """Raises OperatorRefused unless this entry is open and concerns this intent. None needs no check."""
    if letter is None:
        return
    found = await _read(connection, letter)
    if found.intent_id != intent:
        raise OperatorRefused(f"dead letter {letter} does not concern intent {intent}")


RESOLVE = """
UPDATE idem.dead_letters
   SET resolved_at = statement_timestamp(), resolution = %(how)s,
       resolved_by = concat_ws(' / ', current_user, %(by)s::text), note = %(note)s
 WHERE id = %(letter)s AND resolved_at IS NULL
"""


async def resolve(connection: AsyncConnection[Any], letter: UUID | None, how: str, by: str, reason: str) -> bool:
    """Resolve an entry if it is still open (the settlement may have resolved it). Returns whether it did."""
    note, by = storable.text(reason, WORDS), storable.text(by, 200)
    done = await connection.execute(RESOLVE, {"letter": letter, "how": how, "by": by, "note": note})
    return done.rowcount == 1


async def _resolve_open(connection: AsyncConnection[Any], letter: UUID, how: str, by: str, reason: str) -> None:
    if not await resolve(connection, letter, how, by, reason):
        raise OperatorRefused(
            "another operator resolved this dead letter while you were deciding: run the command again"
        )


def _check_seen(found: Any, seen: int) -> None:
    if found.seen != seen:
        raise OperatorRefused(
            f"dead letter {found.id} occurred again ({found.seen} times so far): read it again, then decide"
        )


async def _read(connection: AsyncConnection[Any], letter: UUID) -> Any:
    found = await (await records(connection).execute(DEAD_LETTER, {"letter": letter})).fetchone()
    if found is None:
        raise OperatorRefused(
            f"dead letter {letter} does not exist in this database: `idem dlq list` shows the open ones"
        )
    if found.resolved_at is not None:
        raise OperatorRefused(
            f"dead letter {letter} is already resolved: {found.resolution}, by {found.resolved_by}, "
            f"{found.resolved_at:%Y-%m-%d %H:%M:%S} UTC"
        )
    return found
