
WITH intents AS MATERIALIZED (SELECT intent_id AS i, id AS o, idem.uuid7() AS w FROM idem.outbox LIMIT %(n)s),
     events AS (INSERT INTO idem.events (aggregateid, number, type, payload)
                SELECT i, 1, 'completed', '{}' FROM intents),
     marks AS (INSERT INTO idem.handled_events (event_id, handler) SELECT w, 'h' FROM intents),
     work AS (INSERT INTO idem.handler_work (handler, intent_id, number, event_id)
              SELECT h, i, 1, w FROM intents, unnest(ARRAY['h', 'g']) AS h),
     letters AS (INSERT INTO idem.dead_letters (intent_id, reason, webhook_event_id)
                 SELECT i, 'conflict', w FROM intents),
     webhooks AS (INSERT INTO idem.webhook_events (id, provider, account, event_id, fate, intent_id)
                  SELECT w, 'p', 'a', w, 'applied', i FROM intents),
     proofs AS (INSERT INTO idem.proofs (outbox_id, intent_id, source, outcome)
                SELECT o, i, 'webhook', 'pending' FROM intents)
INSERT INTO idem.webhook_bodies (webhook_event_id, headers, body) SELECT w, '{}', '' FROM intents
