"""The beginning of a run: the row is claimed by the caller, and committed before the caller's code makes the call."""

from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.accept import accept
from idem.outbox.accept.prepare import Prepared
from idem.outbox.database.pool import records
from idem.outbox.domain.decisions import Decision, Limited
from idem.outbox.domain.outbox_row import OutboxRow, claimed_row
from idem.outbox.values import clock


@dataclass(frozen=True, slots=True)
class Begun:
    """A row that this process holds. `lease_ends` is on the boot-time clock; `again`: it was at rest before."""

    row: OutboxRow
    lease_ends: float
    again: bool


Beginning: TypeAlias = Begun | Decision

BEGIN = f"""
SELECT {accept.DECIDED}, b.row_id, b.row_attempt, b.row_key::text AS row_key, b.lease_left
  FROM idem.begin_inline(
           %(tenant)s::text, %(operation)s::text, %(key)s::text, %(fingerprint)s::text, %(params)s::jsonb,
           %(label)s::text, %(provider)s::text, %(account)s::text, %(origin)s::text, %(provider_key)s::uuid,
           %(body)s::bytea, make_interval(secs => %(key_ttl)s::float8), make_interval(secs => %(patience)s::float8),
           %(refuse_after_expiry)s::boolean, %(traceparent)s::text,
           %(token)s::uuid, %(holder)s::text, make_interval(secs => %(lease)s::float8)) AS b
 CROSS JOIN LATERAL (SELECT (b.decided).*) AS d
"""  # noqa: S608


async def begin(connection: AsyncConnection[Any], prepared: Prepared, *, token: UUID, holder: str) -> Beginning:
    """One round trip and one transaction. The same token again finds what it has claimed already.

    The boot-time clock is read before the statement is sent, so that this process never believes in its lease for
    longer than the database does.
    """
    operation = prepared.operation
    now = clock.boottime()
    cursor = await records(connection).execute(
        BEGIN, {**accept.wanted(prepared), "token": token, "holder": holder, "lease": operation.lease}
    )
    record = await cursor.fetchone()
    assert record is not None
    if record.row_id is None:
        decided = accept.decision(record)
        assert not isinstance(decided, Limited)  # only a caller that sets a limit gets it
        return decided
    row = claimed_row(
        record,
        token=token,
        holder=holder,
        id=record.row_id,
        attempt=record.row_attempt,
        provider_key=record.row_key,
        operation=operation.name,
        provider=operation.provider,
        account=operation.account,
        inline=True,
    )
    return Begun(row, now + record.lease_left, again=record.decision == "begun_again")
