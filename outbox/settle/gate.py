"""The one gate: every end of a claim, every proof, verdict and operator's decision is written here.

The commonest end has a narrow statement of its own (`commonest`), which must write the same: a test compares them.

Beside it, each writes its own state: accept, the completion of a local operation, the begin of an inline call, the
client's retry and the approval of a call (SQL functions), the claim (`worker.claim`), and the expiry of keys with the
rows at rest that go with them (`sweeper.expired_keys`, `sweeper.abandoned`).

Every write names the row, its claim token and its attempt, and says which rows it did not find as it expected them.
Lock order everywhere: outbox (by id), key, intent, dead letter.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, DataError
from psycopg.errors import ProgramLimitExceeded
from psycopg.pq import TransactionStatus

from idem.outbox.database.pool import records
from idem.outbox.domain.transition import Change, bare, parameters
from idem.outbox.observe import after_commit
from idem.outbox.settle.doubted_rows import O_IS_LISTED
from idem.outbox.settle.order import ALSO_PROMOTED, PROMOTION, WAKES, moved

UNSTORABLE = (DataError, ProgramLimitExceeded)
"""What a value from outside can do to a batch in spite of being made storable (SQLSTATE classes 22 and 54)."""

# What another session holds (the row, its key if that changes, its intent, an open entry of it, a proof that is folded)
# is skipped and never waited for: only the rows that it belongs to are left for later.
WRITE = f"""
WITH input AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(changes)s::json) AS i (
        id uuid, token uuid, attempt integer, alone boolean, to_status text, to_state text, key_state text, ended text,
        step_end jsonb, next_step integer, next_patience float8,
        due_in float8, redrive_in float8, patience float8, quiet_for float8, quiet_from text,
        lookups integer, keeps_schedule boolean, absences integer, failures integer, redrives integer, sweeps integer,
        key_burned boolean, server_error boolean, whole boolean, rests boolean, doubt text, word text, ruling text,
        answer_status integer, answer_headers jsonb, answer_body text, answer_ttl float8,
        interim jsonb, still_open boolean,
        error_code text, error_message text, reference text, provider_status text, result jsonb, event text,
        source text, kind text, seen text, http_status integer, details jsonb, message text, body text,
        letters jsonb, closes jsonb, folds jsonb)
), locked AS MATERIALIZED (
    SELECT o.* FROM idem.outbox o WHERE o.id = ANY(%(ids)s) ORDER BY o.id FOR UPDATE SKIP LOCKED
), keys AS MATERIALIZED (
    SELECT k.intent_id FROM locked l JOIN input i ON i.id = l.id CROSS JOIN LATERAL (
           SELECT k.intent_id FROM idem.idempotency_keys k
            WHERE k.intent_id = l.intent_id AND k.state NOT IN ('completed', 'expired')
              AND (k.state <> i.key_state OR k.last_error_code IS DISTINCT FROM i.error_code)
              FOR NO KEY UPDATE SKIP LOCKED) k
), intents AS MATERIALIZED (
    SELECT n.* FROM locked l JOIN idem.intents n ON n.id = ANY (ARRAY[l.intent_id])
     ORDER BY n.id FOR NO KEY UPDATE OF n SKIP LOCKED
), letters AS MATERIALIZED (
    SELECT d.id FROM idem.dead_letters d
     WHERE d.intent_id = ANY (ARRAY(SELECT l.intent_id FROM locked l)) AND d.resolved_at IS NULL
     ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED
), proofs AS MATERIALIZED (
    SELECT p.id FROM idem.proofs p WHERE p.id = ANY (%(folds)s) ORDER BY p.id FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT l.intent_id
      FROM locked l JOIN input i ON i.id = l.id JOIN idem.idempotency_keys k ON k.intent_id = ANY (ARRAY[l.intent_id])
     WHERE k.state NOT IN ('completed', 'expired')
       AND (k.state <> i.key_state OR k.last_error_code IS DISTINCT FROM i.error_code)
       AND k.intent_id <> ALL (ARRAY(SELECT f.intent_id FROM keys f))
    UNION ALL
    SELECT d.intent_id FROM idem.dead_letters d
     WHERE d.intent_id = ANY (ARRAY(SELECT l.intent_id FROM locked l)) AND d.resolved_at IS NULL
       AND d.id <> ALL (ARRAY(SELECT f.id FROM letters f))
), held_proofs AS MATERIALIZED (
    SELECT p.id FROM idem.proofs p WHERE p.id = ANY (%(folds)s) AND p.id <> ALL (ARRAY(SELECT f.id FROM proofs f))
), matched AS MATERIALIZED (
    SELECT i.*, o.intent_id, o.step, o.step_name, o.status AS from_status, o.claimed_by, o.claimed_at, o.claimed_until,
           o.provider, o.account, o.traceparent, o.sent_as, o.doubted_since,
           extract(epoch FROM statement_timestamp() - o.status_since)::float8 AS waited,
           least(o.imported_sent_at, n.created_at) AS wanted_first,
           n.state AS from_state, n.tenant_id, n.operation, n.idempotency_key, n.label,
           statement_timestamp() AS at
      FROM input i
      JOIN locked o ON o.id = i.id AND o.claim_token IS NOT DISTINCT FROM i.token AND o.attempt = i.attempt
      JOIN intents n ON n.id = o.intent_id
     WHERE o.intent_id <> ALL (ARRAY(SELECT h.intent_id FROM held h))
       AND NOT i.folds ?| ARRAY(SELECT h.id::text FROM held_proofs h)
       AND NOT (i.alone AND EXISTS (SELECT FROM idem.proofs p WHERE p.outbox_id = ANY (ARRAY[o.id])
                                       AND NOT i.folds ? p.id::text
                                       AND (p.outcome <> 'hint'
                                            OR o.status <> 'claimed' AND i.to_status IS DISTINCT FROM o.status)))
       -- Its own attempt alone does not show that commits which the database has forgotten did not send it.
       AND (o.doubted_since IS NULL OR i.whole OR i.to_status IS DISTINCT FROM 'held' OR o.status = 'held')
       AND (i.doubt = 'begins' OR NOT {O_IS_LISTED})
), gone AS (
    DELETE FROM idem.outbox o USING matched m WHERE o.id = ANY (ARRAY[m.id]) AND m.to_status IS NULL
    RETURNING o.id, o.intent_id, o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number, o.refusal_holds,
              m.source, o.refusal_holds AND m.ended = 'refused' AS holds, m.next_step IS NOT NULL AS goes_on
), ended AS (
    -- Of a flow: the end of the step. It is read from the rows that are gone, so the next row comes after both.
    INSERT INTO idem.steps (intent_id, step, outbox_id, name, outcome, undoes, provider, account, provider_reference,
                            provider_status, sent_as, object_end, fields)
    SELECT m.intent_id, m.step, m.id, m.step_name, m.step_end ->> 'outcome', (m.step_end ->> 'undoes')::smallint,
           m.provider, m.account, m.reference, m.provider_status,
           CASE WHEN m.source <> 'operator' THEN m.sent_as END, CASE WHEN m.still_open THEN 'open' END,
           coalesce(m.result, '{{}}')
      FROM gone g JOIN matched m ON m.id = g.id WHERE m.step_end IS NOT NULL
    RETURNING intent_id
), seen AS (
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, outcome, http_status,
                               provider_reference, from_state, to_state, from_status, to_status, holder, claimed_at,
                               claimed_until, details)
    SELECT m.intent_id, m.id, m.step, m.attempt, m.token, m.source, m.kind, m.seen, m.http_status, m.reference,
           m.from_state, m.to_state, m.from_status, m.to_status, m.claimed_by, m.claimed_at, m.claimed_until,
           m.details
      FROM matched m
    RETURNING intent_id
), kept AS (
    UPDATE idem.intents n
       SET state      = m.to_state,
           version    = n.version + 1,
           outcome    = m.ended,
           settled_at = CASE WHEN m.to_state = 'completed' THEN m.at END,
           -- What a person has seen may be in another account: it does not show whose calls are found.
           sent_as    = CASE WHEN m.to_state = 'completed' AND m.source <> 'operator' THEN m.sent_as END,
           provider_reference = CASE WHEN m.step_name IS NULL THEN coalesce(m.reference, n.provider_reference) END,
           result     = coalesce(m.result, n.result),
           recovery_point = CASE WHEN m.step_end IS NULL THEN n.recovery_point ELSE m.step END,
           interim    = CASE m.to_status WHEN 'awaiting' THEN coalesce(m.interim, n.interim) END,
           object_end = CASE WHEN m.still_open AND m.step_name IS NULL THEN 'open' END,
           approval   = CASE m.ruling WHEN 'none' THEN NULL ELSE coalesce(m.ruling, n.approval) END
      FROM matched m
     WHERE n.id = ANY (ARRAY[m.intent_id])
       AND (m.from_state <> m.to_state OR m.reference IS NOT NULL OR m.interim IS NOT NULL OR m.step_end IS NOT NULL
            OR m.from_status IS DISTINCT FROM 'claimed')
    RETURNING n.id
), begun AS MATERIALIZED (
    SELECT e.intent_id, idem.begin_step(e.intent_id, m.next_step, make_interval(secs => m.next_patience), m.traceparent,
                                        m.source, m.doubted_since, g.ordering_group, g.ordering_key,
                                        g.ordering_number, g.refusal_holds,
                                        m.to_state = 'failed_retryable') AS id
      FROM ended e JOIN matched m ON m.intent_id = e.intent_id JOIN gone g ON g.id = m.id
     WHERE m.next_step IS NOT NULL
       -- Its evidence comes after that of the end, and it reads the intent as this statement leaves it.
       AND (SELECT count(*) FROM seen) > 0 AND (SELECT count(*) FROM kept) > 0
), {WAKES}, moved AS (
    UPDATE idem.outbox o
       SET status = m.to_status,
           status_since  = CASE WHEN o.status = m.to_status THEN o.status_since ELSE m.at END,
           available_at  = coalesce(m.at + make_interval(secs => m.due_in), o.available_at),
           -- Only what brings a row to rest decides about its automatic redrive.
           redrive_at    = CASE WHEN m.rests THEN m.at + make_interval(secs => m.redrive_in)
                                WHEN m.to_status = 'held' AND o.status = 'held' THEN o.redrive_at END,
           scheduled_at  = CASE WHEN m.keeps_schedule AND o.status = m.to_status THEN o.scheduled_at END,
           start_before  = coalesce(m.at + make_interval(secs => m.patience), o.start_before),
           first_sent_at = CASE WHEN m.to_status IN ('approval', 'unfrozen', 'pending', 'waiting', 'held') THEN NULL
                                ELSE coalesce(o.first_sent_at, o.doubted_since, o.denied_sent_at, m.wanted_first) END,
           doubted_since = CASE m.doubt WHEN 'begins' THEN coalesce(o.doubted_since, o.first_sent_at, o.denied_sent_at,
                                                                    m.wanted_first)
                                        WHEN 'ends' THEN NULL ELSE o.doubted_since END,
           denied_sent_at    = CASE m.word WHEN 'begins' THEN coalesce(idem.earlier(o.first_sent_at, o.doubted_since),
                                                                   m.wanted_first)
                                       WHEN 'ends' THEN NULL ELSE o.denied_sent_at END,
           started_at    = NULL,
           claim_token   = NULL, claimed_by = NULL, claimed_at = NULL, claimed_until = NULL,
           quiet_after   = greatest(o.quiet_after, make_interval(secs => m.quiet_for)
                               + CASE m.quiet_from WHEN 'lease' THEN coalesce(o.claimed_until, m.at) ELSE m.at END),
           lookups  = coalesce(m.lookups, o.lookups),       absences  = coalesce(m.absences, o.absences),
           failures   = coalesce(m.failures, o.failures),     redrives = coalesce(m.redrives, o.redrives),
           sweeps   = coalesce(m.sweeps, o.sweeps),     key_burned = coalesce(m.key_burned, o.key_burned),
           -- What is proven not executed speaks for every attempt until now.
           server_error = CASE WHEN m.to_status IN ('approval', 'unfrozen', 'pending', 'waiting', 'held') THEN false
                               ELSE coalesce(m.server_error, o.server_error) END,
           provider_reference = coalesce(m.reference, o.provider_reference),
           approval = CASE m.ruling WHEN 'none' THEN NULL ELSE coalesce(m.ruling, o.approval) END
      FROM matched m WHERE o.id = ANY (ARRAY[m.id]) AND m.to_status IS NOT NULL
), answered AS (
    UPDATE idem.idempotency_keys k
       SET state              = m.key_state,
           response_status    = m.answer_status,
           response_headers   = m.answer_headers,
           response_body      = decode(m.answer_body, 'base64'),
           response_schema_version = CASE
               WHEN m.key_state <> 'completed' THEN NULL
               WHEN m.answer_headers ->> 'Idempotent-Answer-Version' ~ '^[1-9][0-9]{{0,8}}$'
                   THEN (m.answer_headers ->> 'Idempotent-Answer-Version')::integer
               ELSE 1 END,
           completed_at       = CASE WHEN m.key_state = 'completed' THEN m.at END,
           last_error_code    = m.error_code,
           last_error_message = m.error_message,
           expires_at         = CASE WHEN m.key_state IN ('completed', 'failed_retryable')
                                     THEN greatest(k.expires_at, m.at + make_interval(secs => m.answer_ttl))
                                     ELSE k.expires_at END
      FROM matched m
     WHERE k.intent_id = ANY (ARRAY[m.intent_id]) AND k.state NOT IN ('completed', 'expired')
       AND (k.state <> m.key_state OR k.last_error_code IS DISTINCT FROM m.error_code)
), quoted AS (
    INSERT INTO idem.provider_answers AS q (outbox_id, outcome, intent_id, attempt, http_status, message, body, at)
    SELECT m.id, coalesce(m.seen, m.kind), m.intent_id, m.attempt, m.http_status, m.message, m.body, m.at
      FROM matched m WHERE m.body IS NOT NULL OR m.message IS NOT NULL
        ON CONFLICT (outbox_id, outcome) DO UPDATE
           SET attempt = excluded.attempt, http_status = excluded.http_status, message = excluded.message,
               body = excluded.body, at = excluded.at, times = q.times + 1
), buried AS (
    INSERT INTO idem.dead_letters AS d (intent_id, reason, details)
    SELECT m.intent_id, l.reason, l.details
      FROM matched m, jsonb_to_recordset(m.letters) AS l (reason text, details jsonb)
        ON CONFLICT (intent_id, reason) WHERE resolved_at IS NULL DO UPDATE SET seen = d.seen + 1
    RETURNING d.intent_id, d.reason, d.seen
), opened AS MATERIALIZED (
    SELECT b.intent_id, array_agg(b.reason) AS reasons FROM buried b WHERE b.seen = 1 GROUP BY b.intent_id
), closed AS (
    UPDATE idem.dead_letters d
       SET resolved_at = m.at, resolution = m.kind,
           resolved_by = concat_ws(' / ', current_user, CASE m.source WHEN 'operator' THEN m.details ->> 'by' END),
           note = coalesce(CASE m.source WHEN 'operator' THEN m.details ->> 'reason' END,
                           'answered by ' || m.source || ', ' || coalesce(m.seen, m.kind))
      FROM matched m
     WHERE d.intent_id = ANY (ARRAY[m.intent_id]) AND d.resolved_at IS NULL AND m.closes ? d.reason
), emitted AS (
    INSERT INTO idem.events (aggregateid, number, type, payload)
    SELECT m.intent_id, e.number + v.place, v.type,
           jsonb_build_object('intent', m.intent_id, 'number', e.number + v.place, 'tenant', m.tenant_id,
                              'operation', m.operation, 'label', m.label, 'state', m.to_state, 'outcome', m.ended,
                              'provider_reference', m.reference, 'status', m.provider_status)
               || CASE WHEN m.still_open THEN '{{"interim": true}}'::jsonb ELSE '{{}}' END
               || coalesce(m.step_end -> 'told', '{{}}')
               || CASE WHEN v.type <> 'step' THEN coalesce(m.step_end -> 'flow', '{{}}') ELSE '{{}}' END
      FROM matched m CROSS JOIN LATERAL (
           SELECT coalesce(max(v.number), 0) AS number FROM idem.events v WHERE v.aggregateid = m.intent_id) AS e
     CROSS JOIN LATERAL (
           SELECT 1 AS place, 'step' AS type WHERE m.step_end IS NOT NULL
            UNION ALL
           SELECT CASE WHEN m.step_end IS NULL THEN 1 ELSE 2 END, m.event WHERE m.event IS NOT NULL) AS v
     WHERE m.event IS NOT NULL OR m.step_end IS NOT NULL
), folded AS (
    DELETE FROM idem.proofs p USING matched m, jsonb_array_elements_text(m.folds) AS f (id)
     WHERE p.id = ANY (ARRAY[f.id::uuid])
)
SELECT m.id, m.tenant_id AS tenant, m.operation, m.idempotency_key AS key, m.intent_id AS intent, m.attempt, m.source,
       m.kind, m.seen, m.from_state, m.to_state, m.from_status, m.to_status, m.provider, m.account, m.waited,
       m.traceparent, b.reasons AS letters, s.id AS next_row
  FROM matched m LEFT JOIN opened b ON b.intent_id = m.intent_id LEFT JOIN begun s ON s.intent_id = m.intent_id
  {ALSO_PROMOTED}
"""  # noqa: S608


async def write(connection: AsyncConnection[Any], changes: Sequence[Change]) -> set[UUID]:
    """Write changes in one statement; return the ids of the rows that were as their guards expected.

    The others were locked by another session (the row, its key, its intent or an open entry of it), have another claim
    by now, or have stored proofs to fold. A batch that fails with a data error is split; a row that fails alone is
    written without its details (hazard 20). Raises psycopg.OperationalError when the database is away: the same batch
    may be written again.
    """
    if not changes:
        return set()
    records = [parameters(change) for change in changes]
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        return await _write_in_transaction(connection, records)
    try:
        return await _write(connection, records)
    except UNSTORABLE:
        if len(changes) > 1:
            half = len(changes) // 2
            return await write(connection, changes[:half]) | await write(connection, changes[half:])
        return await _write(connection, [bare(records[0])])


async def _write_in_transaction(connection: AsyncConnection[Any], records: list[dict[str, Any]]) -> set[UUID]:
    try:
        async with connection.transaction():
            return await _write(connection, records)
    except UNSTORABLE:
        async with connection.transaction():
            return await _write(connection, [bare(record) for record in records])


async def _write(connection: AsyncConnection[Any], rows: Sequence[Mapping[str, Any]]) -> set[UUID]:
    cursor = records(connection)
    await cursor.execute(WRITE, _given(rows), prepare=True)
    written = await cursor.fetchall()
    for row in written:
        after_commit.emit(connection, partial(after_commit.moved, moved(row)))
    return {row.id for row in written if row.kind != PROMOTION}


def given(changes: Sequence[Change]) -> dict[str, Any]:
    """What WRITE is given, for who executes it on a connection of another kind."""
    return _given([parameters(change) for change in changes])


def _given(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "changes": json.dumps(rows, allow_nan=False),
        "ids": [UUID(row["id"]) for row in rows],
        "folds": [UUID(proof) for row in rows for proof in row["folds"]],
    }
