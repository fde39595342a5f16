
WITH wanted AS MATERIALIZED (
    SELECT idem.uuid7() AS intent, idem.uuid7() AS row, gen_random_uuid() AS provider_key,
           %(key)s || n AS key, statement_timestamp() AS at
      FROM generate_series(1, %(n)s) AS n
), intents AS (
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, params, requested_at)
    SELECT intent, 't', %(operation)s, key, %(provider)s, %(provider)s, '{}', at FROM wanted
), keys AS (
    INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at)
    SELECT 't', %(operation)s, key, 'v1:x', intent, at + interval '3 days' FROM wanted
), queued AS (
    INSERT INTO idem.outbox (id, intent_id, tenant_id, status, status_since, available_at, start_before, operation, provider,
                             account, origin, provider_key, marks_start)
    SELECT row, intent, 't', 'pending', at, at, at + make_interval(secs => %(start)s), %(operation)s, %(provider)s,
           %(provider)s, 'http://127.0.0.1:9', provider_key, %(marks)s FROM wanted
), requests AS (
    INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
    SELECT row, intent, provider_key, %(provider)s, %(provider)s, 'POST', '/payments', '{}', '{}' FROM wanted
), seen AS (
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, to_state, to_status)
    SELECT intent, row, 1, 0, 'accept', 'accepted', 'in_progress', 'pending' FROM wanted
)
SELECT intent FROM wanted
