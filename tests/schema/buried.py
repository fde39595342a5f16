"""Rows that nobody asks about, before the one that is due."""

BURIED = """
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, first_sent_at, provider_key, status,
                         operation, provider, account, origin, tenant_id)
SELECT gen_random_uuid(), gen_random_uuid(), now() - n * interval '1 s', now() + interval '1 day', now(),
       CASE WHEN n % 2 = 0 THEN now() END, gen_random_uuid(), CASE WHEN n % 2 = 0 THEN 'unknown' ELSE 'held' END,
       'pay', 'p0', 'a0', 'https://bank.test', 't'
  FROM generate_series(1, 100000) AS n
"""
