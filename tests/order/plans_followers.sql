WITH installation AS (
    UPDATE idem.installation SET environment = 'test'
), intents AS (
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, provider, account, params, requested_at)
    SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, 't', 'pay', 'key ' || n,
           CASE WHEN n = 1 THEN 'unknown' ELSE 'in_progress' END, 'p', 'a', '{}', now()
      FROM generate_series(1, 1 + %(followers)s::integer) AS n
), keys AS (
    INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, state, intent_id, expires_at)
    SELECT 't', 'pay', 'key ' || n, 'v1:0', CASE WHEN n = 1 THEN 'unknown' ELSE 'in_progress' END,
           ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid, now() + interval '1 day'
      FROM generate_series(1, 1 + %(followers)s::integer) AS n
), requests AS (
    INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
    SELECT r.id, r.id, r.id, 'p', 'a', 'POST', '/', '{}', '' FROM (VALUES (uuid '00000000-0000-0000-0000-000000000002')) AS r (id)
)
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, first_sent_at, quiet_after, attempt,
                         provider_key, status, tenant_id, operation, provider, account, origin, ordering_group,
                         ordering_key, ordering_number, refusal_holds)
SELECT i.id, i.id, now() - interval '1 hour', now() + interval '1 day', now() - interval '1 hour',
       CASE WHEN n = 1 THEN now() END, CASE WHEN n = 1 THEN now() END, CASE WHEN n = 1 THEN 1 ELSE 0 END,
       i.id, CASE WHEN n = 1 THEN 'unknown' ELSE 'waiting' END, 't', 'pay', 'p', 'a', 'https://bank.test', 'pay', 'o',
       n, true
  FROM generate_series(1, 1 + %(followers)s::integer) AS n
 CROSS JOIN LATERAL (SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(n), 12, '0'))::uuid AS id) AS i
