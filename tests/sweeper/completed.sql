
WITH rows AS (DELETE FROM idem.outbox WHERE intent_id = ANY (%(intents)s)),
     intents AS (UPDATE idem.intents SET state = 'completed', outcome = 'succeeded', settled_at = statement_timestamp()
                  WHERE id = ANY (%(intents)s)),
     told AS (INSERT INTO idem.events (aggregateid, number, type, payload, created_at)
              SELECT i, 1, 'completed', '{}', statement_timestamp() - make_interval(secs => %(age)s)
                FROM unnest(%(intents)s::uuid[]) AS i)
UPDATE idem.idempotency_keys
   SET state = 'completed', response_status = 201, response_headers = '{}', response_body = 'done',
       response_schema_version = 1, completed_at = statement_timestamp(),
       expires_at = statement_timestamp() + make_interval(secs => %(left)s)
 WHERE intent_id = ANY (%(intents)s)
