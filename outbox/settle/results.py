"""The ends of claims, as their holders report them: a batch in one statement, and one by one what did not fit."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal, LiteralString, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from idem.outbox.database.pool import REFUSED, is_true
from idem.outbox.domain.outcomes import Ambiguous, NotExecuted, name
from idem.outbox.domain.states import OutboxStatus, Reason
from idem.outbox.domain.transition import Evidence
from idem.outbox.observe import after_commit
from idem.outbox.settle import decide
from idem.outbox.settle.commonest import complete_succeeded
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import LockedRow, is_gone, lock, lock_soon
from idem.outbox.settle.proofs import apply
from idem.outbox.settle.record import bury, note
from idem.outbox.settle.report import Report
from idem.outbox.values.errors import IdemError

ResultFate: TypeAlias = Literal["settled", "folded", "already", "late", "late_proof"]
"""What became of a report. late: the lease was lost and the report proves nothing; already: it was written before
the answer to its COMMIT was lost."""


async def settle(connection: AsyncConnection[Any], reports: Sequence[Report]) -> dict[UUID, ResultFate]:
    """Settle reports: a batch in one statement, then one by one what did not fit.

    Raises one of `AWAY` (settle them again), and RowIsLocked: another session holds a row, and nothing was written of
    its report.
    """
    done = await settle_batch(connection, reports)
    fates = dict(done)
    for report in reports:
        # Not `fates`: a second report of the same row has an end of its own.
        if report.row.id not in done:
            fates[report.row.id] = await settle_alone(connection, report)
    return fates


async def settle_batch(connection: AsyncConnection[Any], reports: Sequence[Report]) -> dict[UUID, ResultFate]:
    """Settle in one statement what can be, or in two; the other reports are for `settle_alone`.
    Waits for a lock 10 ms at the most, for the commonest end; the gate waits for none.

    After an outage two claims of one row may be reported side by side: each is an end of its own, in their order, and
    none of them is for this statement.
    """
    ends = reports
    if len({report.row.id for report in reports}) < len(reports):
        claims = Counter(report.row.id for report in reports)
        ends = [report for report in reports if claims[report.row.id] == 1]
    done: set[UUID] = set()
    if connection.info.transaction_status is TransactionStatus.IDLE:
        done = await complete_succeeded(connection, ends)
    if len(done) < len(ends):
        done |= await write(connection, [report.change() for report in ends if report.row.id not in done])
    return dict.fromkeys(done, "settled")


# A CASE, because a condition on the status lets the planner read a partial index of all such rows for one.
REMEMBER_ERROR = """
UPDATE idem.outbox SET server_error = true
 WHERE id = %(id)s AND CASE WHEN status = 'unknown' THEN NOT server_error END
"""


# After commits were lost two claims may have one number: it is the token that says whose claim was swept, and that no
# other one of this number is on record.
WAS_THE_LAST = """
SELECT coalesce(bool_and(e.token = %(token)s), false)
  FROM idem.evidence e
 WHERE e.intent_id = %(intent)s AND e.outbox_id = %(row)s AND e.attempt = %(attempt)s AND e.kind = 'swept'
"""
CLAIM_IS_LIVE = """
SELECT EXISTS (SELECT FROM idem.outbox o
                WHERE o.id = %(row)s AND o.attempt = %(attempt)s
                  AND CASE WHEN o.status = 'claimed' AND o.claim_token = %(token)s
                           THEN o.claimed_until > statement_timestamp() END)
"""
# Whether a standing order or an operator decided that the call was made. Neither has seen it.
IS_TAKEN_AS_DONE = """
SELECT EXISTS (SELECT FROM idem.evidence e
                WHERE e.intent_id = %(intent)s AND e.outbox_id = %(row)s AND e.attempt = %(attempt)s
                  AND e.source IN ('policy', 'operator') AND e.outcome = 'succeeded' AND e.to_state = 'completed')
"""
IS_WRITTEN = """
SELECT EXISTS (SELECT FROM idem.evidence
                WHERE intent_id = %(intent)s AND outbox_id = %(row)s AND attempt = %(attempt)s
                  AND token = %(token)s AND kind = 'report')
"""


async def _holds(connection: AsyncConnection[Any], question: LiteralString, report: Report) -> bool:
    row = report.row
    values = {"intent": row.intent_id, "row": row.id, "attempt": row.attempt, "token": row.token}
    return await is_true(connection, question, values)


class RowIsLocked(IdemError):
    """Another session holds the row of a report, its key or its intent, and the claim still stands: nothing was
    written. The report is settled when the other session lets go, or kept as a proof when the lease is over."""

    def __init__(self, intent: UUID) -> None:
        super().__init__(f"another session locks the row, the key or the intent of {intent}")
        self.intent = intent


WAITING: Final[tuple[type[Exception], ...]] = (RowIsLocked, *REFUSED)
"""What keeps one report waiting, and no other."""


async def settle_alone(connection: AsyncConnection[Any], report: Report, *, last: bool = False) -> ResultFate:
    """Settle one report under its row's lock, in every state of the row. Raises RowIsLocked, and one of `AWAY`.

    `last`: there is no later try, so a result that a locked row keeps out is kept as a proof or as evidence at once.
    """
    # A row that stays locked is mostly one at rest, in its client's own transaction: no claim of ours is on it any
    # more. If our claim still stands, the report waits: it says more than its lease would.
    async with after_commit.transaction(connection):
        found = await lock(connection, report.row.id, skip=True)
        if found is None and not await is_gone(connection, report.row.id):
            if not last and await _holds(connection, CLAIM_IS_LIVE, report):
                raise RowIsLocked(report.row.intent_id)
            found = await lock_soon(connection, report.row.id)
        if found is not None and _still_holds(found, report):
            change = decide.fold(report.change(found.row), found.row, report.proof(), found.stored, report.terms)
            if not await write(connection, [change]):
                raise RowIsLocked(report.row.intent_id)
            return "folded" if found.stored else "settled"
        if await _holds(connection, IS_WRITTEN, report):
            return "already"
        if found is not None and _proves_the_whole(found, report) and await _holds(connection, WAS_THE_LAST, report):
            evidence = Evidence(report.row.caller, "late_not_executed", name(report.outcome), report.seen)
            if await write(connection, [decide.verdict(found.row, evidence, report.terms)]):
                return "late"
        if found is not None and isinstance(report.outcome, Ambiguous) and decide.own_error(report.seen):
            await connection.execute(REMEMBER_ERROR, {"id": report.row.id})
    reference = decide.reference_of(report.outcome)
    evidence = Evidence(report.row.caller, "late_result", name(report.outcome), report.seen, reference)
    proof = report.proof()
    if proof is None:
        async with after_commit.transaction(connection):
            await note(connection, report.row.id, evidence, token=report.row.token, attempt=report.row.attempt)
            if await _contradicts(connection, found, report):
                why = "it was taken as done without a proof, and its worker says that it never made the call"
                about = {"why": why, "attempt": report.row.attempt, "row": str(report.row.id)}
                await bury(connection, report.row.intent_id, Reason.CONFLICT, about)
        return "late"
    letters = (report.letter,) if report.letter else ()
    await apply(connection, report.row.id, proof, evidence, report.terms, letters=letters)
    return "late_proof"


async def _contradicts(connection: AsyncConnection[Any], found: LockedRow | None, report: Report) -> bool:
    # Of the last attempt: an earlier one that was not made says nothing about what a later one has done.
    return (
        found is None
        and isinstance(report.outcome, NotExecuted)
        and await _holds(connection, IS_TAKEN_AS_DONE, report)
        and await _holds(connection, WAS_THE_LAST, report)
    )


def _still_holds(found: LockedRow, report: Report) -> bool:
    return found.row.token == report.row.token and found.row.attempt == report.row.attempt


def _proves_the_whole(found: LockedRow, report: Report) -> bool:
    # The claim was swept, but its holder says that nothing left. It was taken from `pending`, so every attempt
    # before it is proven not executed; the attempt number shows that none came after it.
    return (
        isinstance(report.outcome, NotExecuted)
        and found.row.status is OutboxStatus.UNKNOWN
        and found.row.attempt == report.row.attempt
        and not found.row.contradicted
        and found.row.doubted_for is None
        and not found.stored
    )
