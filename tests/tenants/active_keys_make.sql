
WITH i AS (
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, params, requested_at, state, outcome,
                              settled_at)
    SELECT CASE WHEN %(old)s THEN overlay(idem.uuid7()::text PLACING '0193' FROM 1 FOR 4)::uuid ELSE idem.uuid7() END,
           %(tenant)s, 'pay', %(key)s || n, '{}', now(), 'completed', 'local', now()
      FROM generate_series(1, %(n)s) AS n
    RETURNING id, idempotency_key
)
INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, intent_id, state, expires_at,
                                   completed_at, response_status, response_headers, response_body)
SELECT %(tenant)s, 'pay', i.idempotency_key, 'v1:x', i.id, 'completed', now() + %(left)s * interval '1 second', now(),
       201, '{}', '' FROM i
