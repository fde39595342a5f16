-- An application that uses only SQL: its own row and the payment in one transaction, then a retry, then a misuse.
--
--     psql --no-psqlrc -v ON_ERROR_STOP=1 -f orders.sql "$DATABASE_URL"
--
-- It needs an operation `payments.create` (docs/adopt/sql.md) and a role that may accept for the tenant `acme`.
\set QUIET on
\pset format unaligned
\pset tuples_only on

CREATE TABLE IF NOT EXISTS psql_orders (
    id      text    PRIMARY KEY,
    amount  integer NOT NULL,
    intent  uuid    NOT NULL
);

\echo 1. the order, and the request to charge it: both commit, or neither
BEGIN;
WITH d AS (
    SELECT * FROM idem.accept('acme', 'payments.create', 'charge-psql-1', '{"amount": 4200, "currency": "eur"}')
), written AS (
    -- Only for a new key: a second run of this file is a retry, and writes no second order.
    INSERT INTO psql_orders (id, amount, intent) SELECT 'psql-1', 4200, d.intent_id FROM d WHERE d.decision = 'accepted'
)
SELECT d.decision, d.intent_id AS intent FROM d
\gset
\echo decision: :decision
COMMIT;

\echo 2. the client got no answer and sends it again: the same key, and the same params in another spelling
SELECT decision, intent_id = :'intent' AS same, response_status AS status, convert_from(response_body, 'UTF8') AS answer
  FROM idem.accept('acme', 'payments.create', '"charge-psql-1"', '{"currency":"eur", "amount":4.2e3}')
\gset
\echo decision: :decision
\echo the same intent: :same

\echo 3. the same key for something else is refused by a decision, not by an error
SELECT decision
  FROM idem.accept('acme', 'payments.create', 'charge-psql-1', '{"amount": 9900, "currency": "eur"}')
\gset
\echo decision: :decision
