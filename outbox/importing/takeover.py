"""Compares lines of another outbox with the database, and imports the new ones.

Each new line goes through accept, so that the same client's retry meets its key, and through the one gate, with
evidence of source `import`. Handlers get no event: the earlier system has informed its own.
"""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO
from uuid import UUID

from psycopg import AsyncConnection

from idem.outbox.accept import accept
from idem.outbox.database import installation
from idem.outbox.database.pool import records
from idem.outbox.domain.catalogue import Catalogue
from idem.outbox.domain.decisions import Accepted
from idem.outbox.domain.outbox_row import OutboxRow
from idem.outbox.domain.states import KeyState
from idem.outbox.domain.terms import Terms
from idem.outbox.domain.transition import Change, Evidence
from idem.outbox.importing.batches import batches, digest
from idem.outbox.importing.records import ImportedLine, LineError, read
from idem.outbox.importing.report import ImportReport
from idem.outbox.observe import after_commit
from idem.outbox.settle import decide
from idem.outbox.settle.endings import unknown
from idem.outbox.settle.gate import write
from idem.outbox.settle.locked_rows import read_locked
from idem.outbox.values.errors import OperatorRefused

OPEN = ("queued", "in_flight")
OVER = (
    "To let idem make or settle this call, write a later expires_at or none; if its outcome is known, write that state"
)
FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""The times that the database can store."""


async def check(connection: AsyncConnection[Any], catalogue: Catalogue, file: BinaryIO) -> ImportReport:
    """Read every line and compare it with the database. Writes nothing."""
    secret = await installation.secret(connection)
    found = ImportReport(lost_at=await _lost_at(connection))
    seen: dict[tuple[str, str, str], int] = {}
    sent: dict[tuple[str, str, UUID], int] = {}
    for batch in batches(file):
        items: list[ImportedLine] = []
        found.digests.append(digest(batch))
        for number, text in batch:
            found.lines += 1
            try:
                item = read(number, text, catalogue, secret)
                _only_once(item, seen, sent)
                items.append(item)
            except LineError as error:
                found.err(error)
        async for _ in _new(connection, items, found):
            pass
    return found


# What `--lost` stated stays. What a daemon noticed stays until an operator states otherwise.
LOST_AT = """
SELECT greatest(i.lost_at, CASE WHEN i.doubted_at > coalesce(i.recovered_at, '-infinity') THEN i.doubted_at END) AS at
  FROM idem.installation i
"""


async def _lost_at(connection: AsyncConnection[Any]) -> datetime | None:
    record = await (await records(connection).execute(LOST_AT)).fetchone()
    return None if record is None or record.at is None else record.at.astimezone(UTC)


async def take_over(
    connection: AsyncConnection[Any],
    catalogue: Catalogue,
    file: BinaryIO,
    *,
    checked: ImportReport,
    by: str,
    reason: str,
) -> ImportReport:
    """Import every new line, in transactions of `batches.BATCH` lines; a second run continues where the first ended.

    `checked` is the result of `check` for the same file. Raises OperatorRefused for the first line that cannot be
    imported and if the file has changed since the check, AcceptPaused, and what an unreachable database raises; what
    was committed before stays.
    """
    secret = await installation.secret(connection)
    found = ImportReport()
    for batch in batches(file):
        found.digests.append(digest(batch))
        if found.digests != checked.digests[: len(found.digests)]:
            raise OperatorRefused(OTHER_LINES)
        async with after_commit.transaction(connection):
            if await _lost_at(connection) != checked.lost_at:
                raise OperatorRefused(LOST_MEANWHILE)
            items = []
            for number, text in batch:
                found.lines += 1
                items.append(read(number, text, catalogue, secret))
            async for item, now in _new(connection, items, found):
                await _take_over(connection, catalogue, item, now, by, reason)
            if found.errors:
                raise OperatorRefused(str(found.errors[0]))
    if found.digests != checked.digests:
        raise OperatorRefused(OTHER_LINES)
    return found


LOST_MEANWHILE = (
    "this database has lost commits since the lines were checked (a restore, or `idem recover --lost`): see "
    "docs/on-call.md, then run the import again; lines that were imported already stay unchanged"
)
OTHER_LINES = (
    "the file has other lines than when they were checked a moment ago: something is still writing it. Finish the "
    "export, then run the import again; lines that were imported already stay unchanged"
)


def _only_once(
    item: ImportedLine, seen: dict[tuple[str, str, str], int], sent: dict[tuple[str, str, UUID], int]
) -> None:
    if (first := seen.setdefault(item.scope, item.number)) != item.number:
        raise LineError(item.number, f"key: the same tenant, operation and key are in line {first}")
    operation = item.prepared.operation
    under = (operation.provider, operation.account, item.prepared.provider_key)
    if (first := sent.setdefault(under, item.number)) != item.number:
        raise LineError(
            item.number, f"provider_key: line {first} has the same one, but a provider key can name only one call"
        )


COMPARED = """
SELECT w.number, statement_timestamp() AS now, k.intent_id IS NOT NULL AS known, k.state,
       (SELECT e.details ->> 'line_digest' FROM idem.evidence e
         WHERE e.intent_id = k.intent_id AND e.source = 'import' AND e.kind = 'imported' LIMIT 1) AS digest,
       (SELECT r.intent_id FROM idem.requests r
         WHERE r.provider = w.provider AND r.account = w.account AND r.provider_key = w.provider_key
           AND r.intent_id IS DISTINCT FROM k.intent_id LIMIT 1) AS other
  FROM unnest(%(numbers)s::integer[], %(tenants)s::text[], %(operations)s::text[], %(keys)s::text[],
              %(providers)s::text[], %(accounts)s::text[], %(provider_keys)s::uuid[])
       AS w (number, tenant_id, operation, idempotency_key, provider, account, provider_key)
  LEFT JOIN idem.idempotency_keys k ON k.tenant_id = ANY (ARRAY[w.tenant_id]) AND k.operation = w.operation
                                   AND k.idempotency_key = w.idempotency_key
"""


async def _new(connection: AsyncConnection[Any], items: Sequence[ImportedLine], found: ImportReport) -> Any:
    """The new items, each with the database's time; the others are counted."""
    if not items:
        return
    wanted = {
        "numbers": [item.number for item in items],
        "tenants": [item.scope[0] for item in items],
        "operations": [item.scope[1] for item in items],
        "keys": [item.scope[2] for item in items],
        "providers": [item.prepared.operation.provider for item in items],
        "accounts": [item.prepared.operation.account for item in items],
        "provider_keys": [item.prepared.provider_key for item in items],
    }
    known = {r.number: r for r in await (await records(connection).execute(COMPARED, wanted)).fetchall()}
    for item in items:
        record = known[item.number]
        if record.known and record.digest == item.digest:
            found.already += 1
        elif record.known:
            found.err(LineError(item.number, _in_the_way(record)))
        elif record.other is not None:
            found.err(LineError(item.number, f"provider_key: intent {record.other} already has the same one"))
        elif item.shape.first_sent_at is not None and item.shape.first_sent_at > record.now:
            found.err(LineError(item.number, "first_sent_at: it is in the future by the database's clock"))
        elif item.shape.first_sent_at is not None and item.shape.first_sent_at < FIRST:
            found.err(LineError(item.number, "first_sent_at: it is before the earliest time that idem stores"))
        elif item.shape.expires_at is not None and item.shape.expires_at > LAST:
            found.err(LineError(item.number, f"expires_at: it is after {LAST:%Y-%m-%d}, the last day that idem stores"))
        elif item.shape.expires_at is not None and item.shape.expires_at <= record.now:
            if item.shape.state in OPEN:
                found.err(LineError(item.number, f"expires_at: {item.shape.state}, but its key has expired. {OVER}"))
            else:
                found.expired += 1
        else:
            found.new[item.shape.state] += 1
            yield item, record.now


def _in_the_way(record: Any) -> str:
    if record.digest is None:
        return f"key: idem already has it ({record.state}), and not from an import: its own record stays"
    return (
        f"key: it was imported from another line, and is {record.state} now. idem settles it by itself, or you do, "
        "with `idem dlq resolve`"
    )


OWN_ROW = "SELECT id FROM idem.outbox WHERE intent_id = %(intent)s"
# The replay guard counts from this time; so does a later doubt (Recovery), and a redrive on an operator's statement.
SENT = """
UPDATE idem.outbox SET first_sent_at = %(at)s, imported_sent_at = %(at)s, imported_as = %(known)s WHERE id = %(id)s
"""


# Like `accept.ACCEPT`, but the provider key may be the one under which the earlier system sent it. It is not counted.
TAKE_OVER = f"""
SELECT {accept.DECIDED}
  FROM idem.accept_under_key(
           %(tenant)s::text, %(operation)s::text, %(key)s::text, %(fingerprint)s::text, %(params)s::jsonb,
           %(label)s::text, %(provider)s::text, %(account)s::text, %(origin)s::text, %(provider_key)s::uuid,
           %(method)s::text, %(path)s::text, %(headers)s::jsonb, %(body)s::bytea,
           make_interval(secs => %(key_ttl)s::double precision), make_interval(secs => %(patience)s::double precision),
           %(replay_window)s::integer, %(marks_start)s::boolean, %(traceparent)s::text,
           %(may_create)s::boolean, %(refuse_after_expiry)s::boolean,
           %(plan)s::jsonb, %(ordering_group)s::text, %(ordering_key)s::text, %(refusal_holds)s::boolean) AS d
"""  # noqa: S608


async def _take_over(
    connection: AsyncConnection[Any], catalogue: Catalogue, item: ImportedLine, now: datetime, by: str, reason: str
) -> None:
    terms = catalogue.require(item.prepared.operation.name)
    parameters = accept.parameters(item.prepared, count=False)
    if item.shape.expires_at is not None:
        parameters["key_ttl"] = _left(item, now)
    if item.shape.state == "in_flight" and item.shape.request is None:
        # The operation may render another request now than was sent then: without the bytes idem sends nothing again.
        parameters["replay_window"] = 0
    if item.shape.state in ("completed", "refused"):
        # What has ended elsewhere waits for nothing, and holds nothing.
        parameters |= {"ordering_group": None, "ordering_key": None}
    row = await (await records(connection).execute(TAKE_OVER, parameters)).fetchone()
    assert row is not None
    decided = accept.decision(row)
    if not isinstance(decided, Accepted):
        raise OperatorRefused(f"line {item.number}: its key was used at this moment; run the import again")
    own = await (await connection.execute(OWN_ROW, {"intent": decided.intent_id})).fetchone()
    assert own is not None
    (found,) = await read_locked(connection, [own[0]])
    details = {"line": item.number, "line_digest": item.digest, "by": by, "reason": reason, "as": item.shape.state}
    if not await write(connection, [_change(found.row, item, now, terms, details)]):
        raise OperatorRefused(f"line {item.number}: its row was changed at this moment; run the import again")
    if item.shape.state == "in_flight":
        known = None if item.shape.request is not None else "reference" if item.shape.provider_key is None else "key"
        await connection.execute(SENT, {"id": found.row.id, "at": item.shape.first_sent_at, "known": known})


def _change(row: OutboxRow, item: ImportedLine, now: datetime, terms: Terms, details: dict[str, Any]) -> Change:
    shape, contract = item.shape, terms.contract
    evidence = Evidence("import", "imported", reference=shape.reference, details=details)
    change = Change(row.id, row.token, row.attempt, row.status, row.state, evidence, reference=shape.reference)
    match shape.state:
        case "queued":
            return dataclasses.replace(change, reference=None)
        case "in_flight":
            # The earlier system may have sent it just now.
            quiet = contract.flight_limit + contract.pause_allowance
            return unknown(dataclasses.replace(change, quiet_for=quiet), row, terms)
        case "failed":
            return dataclasses.replace(decide.verdict(row, evidence, terms, redrive=False), event=None)
        case "completed" | "refused" as ended:
            outcome = "succeeded" if ended == "completed" else "refused"
            return dataclasses.replace(
                change,
                evidence=dataclasses.replace(evidence, outcome=outcome),
                status=None,
                state=KeyState.COMPLETED,
                ended="succeeded" if ended == "completed" else "refused",
                answer=item.answer,
                answer_ttl=terms.operation.answer_ttl if shape.expires_at is None else _left(item, now),
            )


def _left(item: ImportedLine, now: datetime) -> float:
    assert item.shape.expires_at is not None
    return max(1.0, (item.shape.expires_at - now).total_seconds())
