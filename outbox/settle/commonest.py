"""The commonest end of a claim in a statement of its own: a call that has succeeded, of an operation of one call.

It writes what the gate (`idem.outbox.settle.gate`) writes for such a row, under the same guards: the same key, intent,
evidence and event. What it does not know (a step, an ordering key, a stored proof, an open dead letter, a doubt, a key
or an intent that was decided before) it leaves to the gate, so nothing is decided here that the gate decides otherwise.
"""

import json
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from idem.outbox.database import arrays
from idem.outbox.database.server_errors import away
from idem.outbox.database.short import short
from idem.outbox.domain.completion import meaning
from idem.outbox.domain.outcomes import Seen, Succeeded
from idem.outbox.domain.transition import evidence_details
from idem.outbox.observe import after_commit
from idem.outbox.settle.doubted_rows import O_IS_LISTED
from idem.outbox.settle.report import Report
from idem.outbox.values import storable

# Locks are waited for ten milliseconds at the most: what another session holds is for the gate, which skips it.
# `IS NOT DISTINCT FROM` and `|| ''` keep the planner from outbox_claims and outbox_leases, by which it could read all
# claims for each row. If a key was not as expected, the division by zero at the end undoes the statement.
COMPLETE_SUCCEEDED = short(f"""
WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', '10ms', true)
), input AS (
    SELECT u.* FROM patience p CROSS JOIN unnest(
           %(ids)b::uuid[], %(tokens)b::uuid[], %(attempts)b::integer[], %(statuses)b::smallint[],
           %(references)b::text[], %(words)b::text[], %(details)b::text[], %(results)b::text[],
           %(answers)b::smallint[], %(headers)b::text[], %(bodies)b::bytea[], %(lives)b::float8[])
           AS u (id, token, attempt, http_status, reference, word, details, result, answer, headers, body, lives)
), gone AS (
    DELETE FROM idem.outbox o USING input i
     WHERE o.id = ANY (ARRAY[i.id]) AND o.claim_token IS NOT DISTINCT FROM i.token AND o.attempt = i.attempt
       AND o.status || '' = 'claimed' AND o.step_name IS NULL AND o.ordering_key IS NULL AND NOT o.inline
       AND (SELECT n.version FROM idem.intents n WHERE n.id = o.intent_id) = 1
       AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id LIMIT 1) IS NULL
       AND (SELECT bool_or(d.resolved_at IS NULL) FROM idem.dead_letters d
             WHERE d.intent_id = o.intent_id) IS NOT TRUE
       AND NOT {O_IS_LISTED}
    RETURNING o.id, o.intent_id, o.step, o.claimed_by, o.claimed_at, o.claimed_until, o.provider, o.account, o.sent_as,
              o.traceparent, extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS waited, i.token,
              i.attempt, i.http_status, i.reference, i.word, i.details, i.result, i.answer, i.headers, i.body, i.lives
), seen AS (
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, outcome, http_status,
                               provider_reference, from_state, to_state, from_status, holder, claimed_at,
                               claimed_until, details)
    SELECT g.intent_id, g.id, g.step, g.attempt, g.token, 'worker', 'report', 'succeeded', g.http_status, g.reference,
           'in_progress', 'completed', 'claimed', g.claimed_by, g.claimed_at, g.claimed_until, g.details::jsonb
      FROM gone g
), kept AS (
    UPDATE idem.intents n
       SET state = 'completed', version = n.version + 1, outcome = 'succeeded', settled_at = statement_timestamp(),
           sent_as = g.sent_as, provider_reference = coalesce(g.reference, n.provider_reference),
           result = g.result::jsonb, interim = NULL
      FROM gone g WHERE n.id = ANY (ARRAY[g.intent_id])
    RETURNING n.id, n.tenant_id, n.operation, n.idempotency_key, n.label, g.reference, g.word, g.answer, g.headers,
              g.body, g.lives, g.id AS row_id, g.attempt, g.provider, g.account, g.waited, g.traceparent
), answered AS (
    UPDATE idem.idempotency_keys k
       SET state = 'completed', response_status = n.answer, response_headers = n.headers::jsonb, response_body = n.body,
           response_schema_version = CASE
               WHEN n.headers::jsonb ->> 'Idempotent-Answer-Version' ~ '^[1-9][0-9]{{0,8}}$'
                   THEN (n.headers::jsonb ->> 'Idempotent-Answer-Version')::integer
               ELSE 1 END,
           completed_at = statement_timestamp(), last_error_code = NULL, last_error_message = NULL,
           expires_at = greatest(k.expires_at, statement_timestamp() + make_interval(secs => n.lives))
      FROM kept n
     WHERE k.intent_id = ANY (ARRAY[n.id]) AND k.state = 'in_progress'
    RETURNING k.intent_id
), emitted AS (
    INSERT INTO idem.events (id, aggregateid, number, type, payload)
    SELECT n.row_id, n.id, 1, 'completed',
           jsonb '{{"number": 1, "state": "completed", "outcome": "succeeded"}}'
           || jsonb_object(ARRAY['intent', 'tenant', 'operation', 'label', 'provider_reference', 'status'],
                           ARRAY[n.id::text, n.tenant_id, n.operation, n.label, n.reference, n.word])
      FROM kept n
)
SELECT n.row_id, n.tenant_id, n.operation, n.idempotency_key, n.id, n.attempt, n.provider, n.account, n.waited,
       n.traceparent
  FROM kept n
 WHERE 1 / CASE WHEN (SELECT count(*) FROM answered) = (SELECT count(*) FROM gone) THEN 1 ELSE 0 END = 1
""")  # noqa: S608


async def complete_succeeded(connection: AsyncConnection[Any], reports: Sequence[Report]) -> set[UUID]:
    """Settle those of these reports that are of the commonest kind, in one statement; the ids of their rows.

    The others are for the gate: nothing was written of them. Outside of a transaction only, because an error undoes the
    statement. Raises one of `AWAY` when the database is away.
    """
    common = [report for report in reports if _is_common(report)]
    if not common:
        return set()
    try:
        given = _given(common)
    except (ValueError, struct.error):  # a value that cannot be stored, as below
        return set()
    cursor = connection.cursor(row_factory=tuple_row)
    try:
        await cursor.execute(COMPLETE_SUCCEEDED, given, prepare=True)
        done = await cursor.fetchall()
    except psycopg.Error as error:
        # A lock, a value that cannot be stored, a key that is otherwise: the gate finds out what it is, row by row.
        if connection.closed or away(error, closed=connection.closed) is not None:
            raise
        return set()
    after_commit.completed(done)
    return {record[0] for record in done}


def _is_common(report: Report) -> bool:
    outcome, row = report.outcome, report.row
    if type(outcome) is not Succeeded or outcome.interim or report.answer is None or report.letter is not None:
        return False
    return row.step_name is None and not row.inline and meaning(report.terms.operation, outcome) is outcome


def _given(reports: Sequence[Report]) -> dict[str, Any]:
    rows = [report.row for report in reports]
    seen = [report.seen for report in reports]
    said: list[Any] = [report.outcome for report in reports]
    answers: list[Any] = [report.answer for report in reports]
    return {
        "ids": arrays.uuids([row.id for row in rows]),
        "tokens": arrays.uuids([row.token for row in rows]),
        "attempts": arrays.integers([row.attempt for row in rows]),
        "statuses": arrays.smallints([each.http_status for each in seen]),
        "references": arrays.texts(
            [None if one.reference is None else storable.text(one.reference, 500) for one in said]
        ),
        "words": arrays.texts([None if one.status is None else storable.text(one.status, 100) for one in said]),
        "details": arrays.texts([_details(each) for each in seen]),
        "results": arrays.texts([_json(storable.fields(one.fields)) if one.fields else "{}" for one in said]),
        "answers": arrays.smallints([answer.status for answer in answers]),
        "headers": arrays.texts([_headers(tuple(answer.headers.items())) for answer in answers]),
        "bodies": arrays.byteas([answer.body for answer in answers]),
        "lives": arrays.floats([report.terms.operation.answer_ttl for report in reports]),
    }


_json: Final = json.JSONEncoder(allow_nan=False).encode


def _details(seen: Seen) -> str:
    # The details of evidence as JSON: but for the time that it took, many calls say the same.
    told = _told(seen.error, seen.note, seen.code, seen.started)
    if seen.elapsed is None:
        return told
    return f'{told[:-1]}{", " if len(told) > 2 else ""}"elapsed": {seen.elapsed!r}}}'


@lru_cache(256)
def _told(error: str | None, note: str | None, code: str | None, started: bool) -> str:
    return _json(evidence_details(Seen(error=error, note=note, code=code, started=started)))


@lru_cache(256)
def _headers(items: tuple[tuple[str, str], ...]) -> str:
    return _json(dict(items))
