"""Writes what the two sides say differently as a dead letter: opened once, with all that a person needs to decide.

Once a person has decided it, it is not opened again: the next check finds the same object and reports it as decided. A
later check that finds nothing closes no entry, because a person must explain what was wrong.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.database.pool import records
from idem.outbox.domain.outcomes import Seen, name
from idem.outbox.domain.provider import Item
from idem.outbox.domain.states import KeyState
from idem.outbox.domain.transition import Evidence
from idem.outbox.observe import after_commit
from idem.outbox.settle import record
from idem.outbox.settle.done_steps import lock_flow
from idem.outbox.settle.step_columns import STATE_AND_OUTCOME
from idem.outbox.values import storable
from idem.reconciler.ledger.compare import Difference, LedgerCall


def utc(seconds: float) -> str:
    """POSIX seconds as RFC 3339; a time of a provider's that no calendar has as it is."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One object that is on one side alone, or is there another than here. `window`: POSIX seconds of the check."""

    kind: Literal["ours_only", "theirs_only"]
    provider: str
    account: str
    ours: LedgerCall | None
    item: Item | None
    differs: tuple[Difference, ...]
    ours_by: str
    window: tuple[float, float]

    @property
    def reference(self) -> str | None:
        """The provider's own reference of it, where one is known."""
        item = None if self.item is None else self.item.reference
        return item if item is not None or self.ours is None else self.ours.reference

    @property
    def key(self) -> str | None:
        """The provider key."""
        item = None if self.item is None else self.item.key
        return item if item is not None or self.ours is None or not self.ours.keys else self.ours.keys[0]

    @property
    def subject(self) -> str:
        """The identity of a discrepancy: the same one has the same subject at every check."""
        which = self.reference or (f"key {self.key}" if self.key else None)
        if which is None and self.ours is not None:
            which = f"intent {self.ours.intent_id}"
        if which is None:
            made = None if self.item is None else self.item.created
            which = f"without a reference, made at {made}"
        what = ",".join(each.what for each in self.differs)
        return storable.text(f"{self.kind} {self.provider}/{self.account} {which} {what}".rstrip(), 500)

    @property
    def contradicts(self) -> bool:
        """Whether what the client was told about the effect is wrong."""
        return any(each.what in ("outcome", "reference") for each in self.differs)

    @property
    def contradicts_answer(self) -> bool:
        """Whether the provider's own word is against an answer that was given."""
        said = None if self.item is None else self.item.said
        completed = self.ours is not None and self.ours.state is KeyState.COMPLETED
        return completed and self.contradicts and said is not None

    def details(self) -> dict[str, Any]:
        """For the dead letter and the report: what is where, when, and what to do."""
        ours, item = self.ours, self.item
        said = None if item is None else item.said
        return {
            "class": self.kind,
            "provider": self.provider,
            "account": self.account,
            "reference": self.reference,
            "provider_key": self.key,
            "differs": [{"what": each.what, "here": each.here, "there": each.there} for each in self.differs],
            "here": None
            if ours is None
            else {
                "intent": str(ours.intent_id),
                "operation": ours.operation,
                **({} if ours.step is None else {"step": ours.step}),
                "state": str(ours.state),
                "outcome": ours.outcome,
                "reference": ours.reference,
                "settled_at": None if ours.settled_at is None else utc(ours.settled_at.timestamp()),
                "fields": dict(ours.result),
            },
            "there": None
            if item is None
            else {
                "reference": item.reference,
                "outcome": None if said is None else name(said),
                "status": item.status,
                "created": None if item.created is None else utc(item.created),
                "fields": {} if said is None else dict(said.fields),
            },
            "ours_by": self.ours_by or None,
            "window": [utc(end) for end in self.window],
            "next": self.next_step,
        }

    @property
    def next_step(self) -> str:
        """What a person does about it."""
        if self.kind == "ours_only":
            return (
                "look for it in the provider's own dashboard: the client was told that it happened. If it is missing "
                "there, run it again with a new key; then resolve this entry as closed"
            )
        if self.ours is None:
            return (
                "find out who made it: no intent in this database did (a restored database, another program, a "
                "person). If it must not stay, reverse it at the provider; then discard this entry"
            )
        if self.ours.state is not KeyState.COMPLETED:
            return (
                "look at the object at the provider: idem says that nothing was executed. Resolve the intent as "
                "completed with its reference, or reverse it there and resolve this entry as closed"
            )
        if any(each.what == "reference" for each in self.differs):
            return (
                "two objects may exist for one intent: keep one, reverse the other at the provider, then resolve this "
                "entry as closed"
            )
        if self.contradicts:
            return (
                "the client got another outcome than the provider shows, and its answer stays: reverse the effect at "
                "the provider, or inform the client; then resolve this entry as closed"
            )
        return "find out which side is right, correct the other side by hand, then resolve this entry as closed"


@dataclass(frozen=True, slots=True)
class Opened:
    """The entry of a discrepancy. `resolution`: a person's decision; None: it is open."""

    letter: UUID | None
    new: bool = False
    resolution: str | None = None


# A contradiction that a webhook or a look-up has brought already is the same one.
KNOWN = """
SELECT d.id, d.resolution FROM idem.dead_letters d WHERE d.subject = %(subject)s AND d.reason = 'discrepancy'
 UNION ALL
SELECT d.id, d.resolution FROM idem.dead_letters d
 WHERE d.intent_id = %(intent)s AND d.reason IN ('conflict', 'possible_duplicate')
   AND jsonb_path_exists(d.details, '$.**.reference ? (@ == $r)', jsonb_build_object('r', %(reference)s::text))
 LIMIT 1
"""


async def known(connection: AsyncConnection[Any], found: Discrepancy) -> Opened | None:
    """The entry that there is of it already, open or decided."""
    about = {
        "subject": found.subject,
        "intent": found.ours.intent_id if found.ours is not None and found.contradicts and found.reference else None,
        "reference": None if found.reference is None else storable.text(found.reference, 500),
    }
    row = await (await records(connection).execute(KNOWN, about)).fetchone()
    return None if row is None else Opened(row.id, resolution=row.resolution)


# Of a flow it is the step that must be as it was.
STATE_OF_STEP = f"""
SELECT {STATE_AND_OUTCOME}
  FROM idem.intents n LEFT JOIN idem.steps d ON d.outbox_id = %(row)s
 WHERE n.id = %(intent)s
"""  # noqa: S608
STATE = "SELECT n.state, n.outcome FROM idem.intents n WHERE n.id = %(intent)s FOR NO KEY UPDATE"


async def open_once(connection: AsyncConnection[Any], found: Discrepancy) -> Opened | None:
    """Open its entry with the evidence, unless one exists; emit `corrected` if the client got another outcome.

    One transaction. None: the intent has changed meanwhile, so it must be read again.
    """
    async with after_commit.transaction(connection):
        # Two checks at once meet here, so that one of them opens it and the other finds it.
        if found.ours is not None and not await _is_unchanged(connection, found.ours):
            return None
        if (already := await known(connection, found)) is not None:
            return already
        details = found.details()
        intent = None if found.ours is None else found.ours.intent_id
        opened = await record.bury_discrepancy(connection, intent, found.subject, details)
        if opened is None:
            return await known(connection, found)
        if found.ours is not None and found.ours.row_id is not None:
            await record.note(connection, found.ours.row_id, _evidence(found, opened), kind="ledger_check")
            if found.contradicts_answer:
                about = {} if found.ours.step is None else {"step": found.ours.step}
                await record.emit(connection, found.ours.intent_id, "corrected", {"details": details, **about})
        return Opened(opened, new=True)


async def _is_unchanged(connection: AsyncConnection[Any], ours: LedgerCall) -> bool:
    """Whether a call is as it was read; locks its intent, and of a flow the open row too, which nobody waits for."""
    about = {"intent": ours.intent_id, "row": ours.row_id}
    if ours.step is not None and (ours.row_id is None or not await lock_flow(connection, ours.row_id)):
        return False
    state = await connection.execute(STATE if ours.step is None else STATE_OF_STEP, about)
    return await state.fetchone() == (ours.state, ours.outcome)


def _evidence(found: Discrepancy, letter: UUID) -> Evidence:
    item = found.item
    said = None if item is None or item.said is None else name(item.said)
    note = "on the provider's list" if item is not None else "neither on the provider's list nor found by a look-up"
    return Evidence(
        "reconciler", "ledger_check", said if item is not None else "absent", Seen(note=note), found.reference,
        {"class": found.kind, "dead_letter": str(letter)},
    )  # fmt: skip
