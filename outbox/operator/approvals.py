"""Approves or rejects a call that waits for a person, with who and why in the evidence.

Each is one transaction on an idle connection, and applies to the version that the operator saw, as in
`idem.outbox.operator.actions`. Of two at once one wins, and the other is told what became of it.
"""

from functools import partial
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.errors import InsufficientPrivilege, ObjectNotInPrerequisiteState

from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.operation import Answer
from idem.outbox.domain.states import OutboxStatus
from idem.outbox.observe import after_commit
from idem.outbox.observe.after_commit import Moved
from idem.outbox.operator import guards, locking
from idem.outbox.operator.actions import Done, evidence_of, refuse, write_decision
from idem.outbox.settle import given_up
from idem.outbox.settle.answer_rendering import Renderer
from idem.outbox.values.errors import OperatorRefused

APPROVE = """
SELECT a.status, n.tenant_id AS tenant, n.idempotency_key AS key
  FROM idem.intents n
 CROSS JOIN LATERAL idem.approve(n.id, %(version)s, %(by)s, %(reason)s, make_interval(secs => %(patience)s::float8))
       AS a (status)
 WHERE n.id = %(intent)s
"""


async def approve(
    connection: AsyncConnection[Any], catalogue: Catalogue, intent: UUID, *, by: str, reason: str, version: int
) -> Done:
    """Release a call that waits for an approval. The time in which it may start begins again.

    One function of the database does it, which alone may: the role of this process needs the right to call it.
    """
    async with locking.lock_intent(connection, intent, version, by, reason) as found:
        refuse(guards.against_approve(found, by))
        terms = catalogue.of(found.row)
        # Of an operation that is not known here the time to start stays as it is.
        patience = None if terms is None else terms.operation.patience
        values = {"intent": intent, "version": version, "by": by, "reason": reason, "patience": patience}
        try:
            released = await (await records(connection).execute(APPROVE, values)).fetchone()
        except InsufficientPrivilege as error:
            raise OperatorRefused(
                "this database role may not approve calls. As the owner of the schema, run `idem db grant ROLE --as "
                "operator`"
            ) from error
        except ObjectNotInPrerequisiteState as error:
            raise OperatorRefused(f"{error.diag.message_primary}. Nothing was changed") from error
        assert released is not None
        row, status = found.row, OutboxStatus(released.status)
        moved = Moved(
            released.tenant, row.operation, released.key, intent, row.attempt, "operator", "approved", row.state,
            row.state, row.status, status, provider=row.provider, account=row.account, waited=row.status_age,
        )  # fmt: skip
        after_commit.emit(connection, partial(after_commit.moved, moved))
        return Done(intent, "approved", row.state, status)


async def reject(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    intent: UUID,
    *,
    by: str,
    reason: str,
    version: int,
    answer: Answer | None = None,
    know_it_did_not_happen: bool = False,
) -> Done:
    """Complete an intent that waits for an approval with the answer `rejected`: its call is never made.

    `answer`: in place of the operation's own, e.g. where its code fails.
    """
    if answer is None:
        # Before the lock, because it is the operation's own code and may be slow.
        answer = await rejected_answer(connection, catalogue, intent)
    async with locking.lock_intent(connection, intent, version, by, reason) as found:
        refuse(guards.against_reject(found, sure=know_it_did_not_happen))
        terms = catalogue.cautious_of(found.row)
        evidence = evidence_of("rejected", by, reason, found)
        return await write_decision(connection, given_up.rejected(found.row, evidence, terms, answer), found)


OPERATION = "SELECT operation FROM idem.intents WHERE id = %(intent)s"


async def rejected_answer(connection: AsyncConnection[Any], catalogue: Catalogue, intent: UUID) -> Answer:
    """The answer that a rejection stores, which never changes: so the operation must be known here.

    Raises ConfigError where it is not, and OperatorRefused where its own code fails.
    """
    row = await (await connection.execute(OPERATION, {"intent": intent})).fetchone()
    if row is None:
        raise locking.no_such(intent)
    known = catalogue.require(row[0]).operation
    try:
        return await Renderer().rejected(known, intent)
    except Exception as error:  # the operation's own code
        raise OperatorRefused(
            f"the operation could not make its `rejected` answer ({type(error).__name__}: {error}). Nothing was "
            "changed; correct it, or cancel the intent"
        ) from error
