
WITH n AS MATERIALIZED (
    SELECT n, gen_random_uuid() AS intent, gen_random_uuid() AS row, gen_random_uuid() AS key,
           coalesce(%(tenant)s, 'tenant ' || lpad(n::text, 6, '0')) AS tenant
      FROM generate_series(1, %(rows)s::integer) AS n
), wanted AS (
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, params, requested_at)
    SELECT intent, tenant, 'pay.keyed', intent, 'keyed', 'keyed', '{}', statement_timestamp() FROM n
), keys AS (
    INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at)
    SELECT tenant, 'pay.keyed', intent, 'v1:0', intent, statement_timestamp() + interval '1 day' FROM n
), frozen AS (
    INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
    SELECT row, intent, key, 'keyed', 'keyed', 'POST', '/payments',
           jsonb_build_object('content-type', 'application/json', 'idempotency-key', key),
           '{"amount": 100, "currency": "eur"}' FROM n
)
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, provider_key, status, operation,
                         provider, account, origin, tenant_id, replay_window)
SELECT row, intent, statement_timestamp() + make_interval(secs => %(due_in)s::float8 + n * 0.001),
       statement_timestamp() + interval '1 day', statement_timestamp(), key, %(status)s, 'pay.keyed', 'keyed', 'keyed',
       %(origin)s, tenant, 3600 FROM n
