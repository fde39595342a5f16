
INSERT INTO idem.outbox (id, intent_id, available_at, start_before, status_since, redrive_at, claim_token, claimed_by,
                         claimed_at, claimed_until, first_sent_at, quiet_after, provider_key, attempt, replay_window,
                         status, operation, provider, account, origin, ordering_group, ordering_key, ordering_number,
                         tenant_id)
SELECT public.id(n, 2), public.id(n, 1),
       now() + CASE WHEN n > 50000 AND n %% 4 > 0 OR n %% 97 = 0 THEN -1 ELSE 1 END * (1 + n %% 1000) * interval '1 s',
       now() + CASE WHEN n > 50000 AND n %% 40 = 3 THEN -1 ELSE 1 END * (1 + n %% 1000) * interval '1 minute',
       public.made(n),
       CASE WHEN n <= 1000 THEN now() + (n - 500) * interval '1 s' END,
       CASE WHEN s = 'claimed' THEN CASE WHEN live AND n %% 10 = 0 AND n <= 91000 THEN %(token)s::uuid
                                         ELSE public.id(n, 7) END END,
       CASE WHEN s = 'claimed' THEN 'worker ' || n %% 9 END,
       CASE WHEN s = 'claimed' THEN now() END,
       CASE WHEN s = 'claimed' THEN now() + CASE WHEN live THEN 1 ELSE -1 END * interval '1 hour' END,
       CASE WHEN s IN ('claimed', 'unknown', 'awaiting') THEN now() - interval '1 minute' END,
       CASE WHEN s = 'unknown' THEN now() END, public.id(n, 3), 1, 86400,
       s, 'pay', 'p' || n %% 5, 'a' || n %% 2, 'https://bank.test', CASE WHEN s = 'waiting' THEN 'pay' END,
       CASE WHEN s = 'waiting' THEN 'order ' || n %% 50 END,
       CASE WHEN s = 'waiting' THEN n END, 't' || n %% 7
  FROM (SELECT n, n <= 94000 AS live,
               CASE WHEN n <= 25000 THEN 'held' WHEN n <= 47000 THEN 'unknown' WHEN n <= 50000 THEN 'awaiting'
                    WHEN n <= 90000 THEN 'pending' WHEN n <= 96000 THEN 'claimed' WHEN n <= 99000 THEN 'waiting'
                    ELSE 'unfrozen' END AS s
          FROM generate_series(%(first)s::integer, %(last)s::integer) AS n) AS x
