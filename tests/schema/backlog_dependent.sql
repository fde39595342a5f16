
INSERT INTO idem.tenant_keys (tenant_id, active, counted_to, counted_at)
SELECT 't' || n, 100, idem.first_uuid7(now() - interval '3 minutes'), now() - interval '2 hours'
  FROM generate_series(0, 5000) AS n;
INSERT INTO idem.tenant_usage (tenant_id, hour, requests, mismatch)
SELECT 't' || n % 1000, date_trunc('hour', now()) - n / 1000 * interval '8 hours', n, n % 10
  FROM generate_series(0, 99999) AS n;
INSERT INTO idem.handled_events (event_id, handler)
SELECT e.id, 'mark_order' FROM idem.events e;
INSERT INTO idem.event_handlers (name, operation, backfill_after, backfilled_intent, backfilled_number)
SELECT name, 'pay', '1', CASE name WHEN 'walks' THEN public.id(100001, 1) END, CASE name WHEN 'walks' THEN 1 END
  FROM unnest(ARRAY['mark_order', 'walks', 'stopped', 'mail']) AS name;
INSERT INTO idem.handler_work (handler, intent_id, number, event_id, due_at, dead_letter_id)
SELECT CASE WHEN n > 129000 THEN '*' WHEN n % 2 = 0 THEN 'mail' ELSE 'stopped' END, e.aggregateid, e.number, e.id,
       CASE WHEN n <= 129000 AND n % 2 = 1 THEN 'infinity' ELSE now() - interval '1 minute' END,
       CASE WHEN n <= 129000 AND n % 2 = 1 AND number = 1 THEN public.id(n, 6) END
  FROM generate_series(96000, 130000) AS n JOIN idem.events e ON e.aggregateid = public.id(n, 1);
INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body, received_at)
SELECT w.id, '{}', '\x7b7d', w.received_at FROM idem.webhook_events w;
