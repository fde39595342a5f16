
INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, outcome, provider, account,
                          provider_reference, params, requested_at, created_at, settled_at)
SELECT public.id(n, 1), 't' || n % 7, 'pay', 'key ' || n,
       CASE WHEN n > 100000 THEN 'completed'
            WHEN n <= 25000 THEN 'failed_retryable'
            WHEN n <= 47000 THEN 'unknown' ELSE 'in_progress' END,
       CASE WHEN n > 100000 THEN 'succeeded' END, 'p' || n % 5, 'a' || n % 2,
       CASE WHEN n > 100000 THEN 'pay_' || n END, '{"amount": 100}', public.made(n), public.made(n),
       CASE WHEN n > 100000 THEN public.made(n) END
  FROM generate_series(1, 130000) AS n;
INSERT INTO idem.idempotency_keys (tenant_id, operation, idempotency_key, fingerprint, state, intent_id,
                                   response_status, response_headers, response_body, created_at, completed_at,
                                   expires_at)
SELECT 't' || n % 7, 'pay', 'key ' || n, 'v1:0',
       CASE WHEN n > 128000 THEN 'expired' WHEN n > 100000 THEN 'completed'
            WHEN n <= 25000 THEN 'failed_retryable'
            WHEN n <= 47000 THEN 'unknown' ELSE 'in_progress' END,
       public.id(n, 1), CASE WHEN n > 100000 AND n <= 128000 THEN 201 END,
       CASE WHEN n > 100000 AND n <= 128000 THEN '{}'::jsonb END,
       CASE WHEN n > 100000 AND n <= 128000 THEN '\x7b7d'::bytea END,
       public.made(n), CASE WHEN n > 100000 THEN public.made(n) END,
       now() + CASE WHEN n % 20 = 0 THEN -1 ELSE 1 END * (1 + n % 100) * interval '1 minute'
  FROM generate_series(1, 130000) AS n;
INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body,
                           created_at)
SELECT public.id(n, 2), public.id(n, 1), public.id(n, 3), 'p' || n % 5, 'a' || n % 2, 'POST', '/payments', '{}',
       '\x7b7d', public.made(n)
  FROM generate_series(1, 130000) AS n WHERE n NOT BETWEEN 99001 AND 100000;
INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, at)
SELECT public.id(n, 1), public.id(n, 2), 1, 0, public.id(n, 4), 'accept', 'accepted', public.made(n)
  FROM generate_series(1, 130000) AS n;
INSERT INTO idem.events (id, aggregateid, number, type, payload, created_at)
SELECT public.id(n, 16 + number), public.id(n, 1), number, 'completed', '{}', public.made(n)
  FROM generate_series(96000, 130000) AS n, generate_series(1, 3) AS number;
INSERT INTO idem.webhook_events (id, provider, account, event_id, fate, intent_id, outbox_id, received_at, reference,
                                 retry_at)
SELECT public.id(n, 5), 'p' || n % 5, 'a' || n % 2, 'evt_' || n,
       CASE WHEN n <= 38000 THEN 'unmatched' WHEN n <= 40000 THEN 'hint' ELSE 'applied' END, public.id(n, 1),
       public.id(n, 2), public.made(n), 'pay_' || n,
       CASE WHEN n <= 40000
            THEN now() + CASE WHEN n <= 31000 OR n > 38000 THEN -1 ELSE 1 END * (n % 1000) * interval '1 s' END
  FROM generate_series(30001, 130000) AS n;
INSERT INTO idem.dead_letters (id, intent_id, reason, resolved_at, resolution, resolved_by)
SELECT public.id(n, 6), public.id(n, 1), CASE WHEN n <= 25000 THEN 'rejected' ELSE 'conflict' END,
       CASE WHEN n > 20000 AND n % 100 > 0 THEN now() END,
       CASE WHEN n > 20000 AND n % 100 > 0 THEN 'completed' END,
       CASE WHEN n > 20000 AND n % 100 > 0 THEN 'anna' END
  FROM generate_series(1, 130000) AS n WHERE n <= 30000 OR n > 60000;
