-- Keys that are refused for ever after they expired, and keys that a tenant may not make now. Both are decided where
-- the key is, so that a limit never refuses the retry of a known key. Older programs call accept without them.

ALTER TABLE idem.idempotency_keys ADD COLUMN refuse_after_expiry boolean NOT NULL DEFAULT false;

ALTER TYPE idem.decision ADD ATTRIBUTE provider_reference text;

-- What the committed row says. Reads only.
CREATE OR REPLACE FUNCTION idem.decide(k idem.idempotency_keys, p_fingerprint text) RETURNS idem.decision
LANGUAGE plpgsql STABLE AS $$
DECLARE
    d  idem.decision;
    o  idem.outbox;
BEGIN
    d.intent_id := k.intent_id;
    d.expires_at := k.expires_at;
    d.completed_at := k.completed_at;
    IF k.fingerprint <> p_fingerprint THEN
        d.decision := 'mismatch';
        RETURN d;
    END IF;
    IF k.state = 'completed' THEN
        d.decision := 'replay';
        d.response_status := k.response_status;
        d.response_headers := k.response_headers;
        d.response_body := k.response_body;
        RETURN d;
    ELSIF k.state = 'expired' THEN
        d.decision := 'expired';
        d.expires_at := NULL;
        RETURN d;
    END IF;
    SELECT * INTO o FROM idem.outbox WHERE intent_id = k.intent_id;
    d.step := o.status;
    d.provider_reference := o.provider_reference;
    d.due_in := extract(epoch FROM greatest(coalesce(o.redrive_at, o.available_at), o.claimed_until)
                                   - statement_timestamp());
    SELECT array_agg(l.reason ORDER BY l.reason) INTO d.reasons FROM idem.dead_letters l
     WHERE l.intent_id = k.intent_id AND l.resolved_at IS NULL
       AND l.reason IN ('rejected', 'crashes_worker', 'reconcile_exhausted', 'not_settleable', 'partial');
    d.decision := CASE
        WHEN k.state = 'in_progress' AND o.status = 'claimed' AND o.claimed_until <= statement_timestamp()
            THEN 'unknown'
        WHEN k.state = 'in_progress' THEN 'in_progress'
        WHEN d.reasons IS NOT NULL   THEN 'needs_operator'
        WHEN k.state = 'unknown'     THEN 'unknown'
        ELSE 'failed_retryable' END;
    RETURN d;
END $$;

-- The advisory lock of a key that is being made. Its number needs the installation's secret, so that no role knows it
-- from the key. While it is held, pg_locks shows it to every role that may connect, and each of them can hold it too: that
-- it is held is a hint, and never an answer.
CREATE FUNCTION idem.key_lock(p_tenant text, p_operation text, p_key text) RETURNS bigint LANGUAGE sql STABLE
    RETURN hashtextextended(
               p_tenant || chr(31) || p_operation || chr(31) || p_key,
               coalesce((SELECT hashtextextended(encode(i.secret, 'hex'), 0) FROM idem.installation i), 0));

-- Whether a transaction that has not ended has written this key: asked where the key's lock is held. The key's index
-- knows, and no role without rights can make it say so. It is tried and taken back: it waits 10 ms for such a
-- transaction. Who holds the lock to make the key writes the key at once, so a key that is free is looked at again 20 ms
-- later. false: the key is free, or it has been committed meanwhile.
CREATE FUNCTION idem.key_is_being_made(p_tenant text, p_operation text, p_key text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    free  boolean;
BEGIN
    -- What locks the whole table is waited for as long as the session does.
    LOCK TABLE idem.idempotency_keys IN ROW EXCLUSIVE MODE;
    FOR look IN 1 .. 2 LOOP
        free := false;
        BEGIN
            SET CONSTRAINTS ALL DEFERRED;
            PERFORM set_config('lock_timeout', '10ms', true);
            INSERT INTO idem.idempotency_keys
                   (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at)
            VALUES (p_tenant, p_operation, p_key, '', idem.uuid7(), statement_timestamp())
            ON CONFLICT DO NOTHING RETURNING true INTO free;
            RAISE EXCEPTION USING ERRCODE = 'ID000', MESSAGE = 'idem takes back what it tried';
        EXCEPTION
            WHEN SQLSTATE 'ID000' THEN
                NULL;
            WHEN lock_not_available OR deadlock_detected THEN
                RETURN true;
        END;
        EXIT WHEN free IS NOT TRUE OR look = 2;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN false;
END $$;
REVOKE EXECUTE ON FUNCTION idem.key_is_being_made(text, text, text) FROM PUBLIC;

-- Whether a worker makes the call of an intent at rest, where its operation goes to this provider and account now (NULL: to
-- none). Where none does, a retry is refused: its row would wait in a queue that is nobody's.
CREATE FUNCTION idem.is_served(p_intent uuid, p_provider text, p_account text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT FROM idem.outbox o
                        WHERE o.intent_id = p_intent AND o.status = 'held'
                          AND (o.inline OR (o.provider, o.account) IS DISTINCT FROM (p_provider, p_account)))
$$;

-- A time that a client's library cannot read would make every list that shows it fail, so it is not written. The tables
-- refuse it too (0004_times.sql).
CREATE FUNCTION idem.refuse_far_time(p_name text, p_after interval) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF statement_timestamp() + p_after < timestamptz '0001-01-02 00:00+00'
       OR statement_timestamp() + p_after >= timestamptz '10000-01-01 00:00+00' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'datetime_field_overflow',
            MESSAGE = format('idem: %s is %s, which leads out of the years 1 to 9999; nothing was written', p_name, p_after),
            HINT    = 'Give a time of a thousand years at most.';
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION idem.refuse_far_time(text, interval) FROM PUBLIC;

-- As the owner, like every function that writes a key, an intent or a row of the outbox: no role of a program may insert
-- into these tables, so none can write what no accept has decided.
CREATE FUNCTION idem.accept(
    p_tenant text, p_operation text, p_key text, p_fingerprint text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_key_ttl interval, p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text,
    p_may_create boolean DEFAULT true, p_refuse_after_expiry boolean DEFAULT false
) RETURNS idem.decision LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k        idem.idempotency_keys;
    d        idem.decision;
    ours     boolean := false;
    intent   uuid;
    row_id   uuid;
BEGIN
    -- The reaper may delete the key between our INSERT and our SELECT: start again, three times.
    FOR round IN 1 .. 3 LOOP
        SELECT * INTO k FROM idem.idempotency_keys
         WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key;
        IF FOUND THEN
            d := idem.decide(k, p_fingerprint);
            IF d.decision <> 'failed_retryable' OR NOT idem.is_served(k.intent_id, p_provider, p_account) THEN
                RETURN d;
            END IF;
            d.decision := CASE WHEN idem.take_up_again(k, p_patience) IS NULL THEN 'in_progress' ELSE 'retrying' END;
            d.step := 'pending';
            d.due_in := 0;
            RETURN d;
        END IF;
        IF NOT p_may_create THEN
            d.decision := 'limited';
            RETURN d;
        END IF;
        IF NOT ours THEN
            -- A committed winner is read above; this lock keeps us from waiting for one that has not committed.
            ours := pg_try_advisory_xact_lock(idem.key_lock(p_tenant, p_operation, p_key))
                 OR NOT idem.key_is_being_made(p_tenant, p_operation, p_key);
            IF NOT ours THEN
                SELECT * INTO k FROM idem.idempotency_keys
                 WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key;
                IF FOUND THEN
                    d := idem.decide(k, p_fingerprint);
                    IF d.decision = 'failed_retryable' THEN
                        d.decision := 'in_progress';
                    END IF;
                    RETURN d;
                END IF;
                d.decision := 'in_progress';
                RETURN d;
            END IF;
        END IF;
        PERFORM idem.refuse_far_time('p_key_ttl', p_key_ttl), idem.refuse_far_time('p_patience', p_patience);
        intent := idem.uuid7();
        row_id := idem.uuid7();
        WITH key AS (
            INSERT INTO idem.idempotency_keys AS i
                   (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at, refuse_after_expiry)
            VALUES (p_tenant, p_operation, p_key, p_fingerprint, intent, statement_timestamp() + p_key_ttl,
                    p_refuse_after_expiry)
            ON CONFLICT DO NOTHING RETURNING i.expires_at
        ), wanted AS (
            INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, label, params,
                                      wanted_at)
            SELECT intent, p_tenant, p_operation, p_key, p_provider, p_account, p_label, p_params,
                   statement_timestamp() FROM key
        ), queued AS (
            INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation,
                                     provider, account, origin, provider_key, replay_window, marks_start, traceparent)
            SELECT row_id, intent, 'pending', statement_timestamp(), statement_timestamp(),
                   statement_timestamp() + p_patience, p_operation, p_provider, p_account, p_origin, p_provider_key,
                   p_replay_window, p_marks_start, p_traceparent FROM key
        ), frozen AS (
            INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers,
                                       body)
            SELECT row_id, intent, p_provider_key, p_provider, p_account, p_method, p_path, p_headers, p_body FROM key
        ), seen AS (
            INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, to_state, to_status)
            SELECT intent, row_id, 1, 0, 'accept', 'accepted', 'in_progress', 'pending' FROM key
        )
        SELECT key.expires_at INTO d.expires_at FROM key;
        IF FOUND THEN
            d.decision := 'accepted';
            d.intent_id := intent;
            d.step := 'pending';
            d.due_in := 0;
            RETURN d;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = 'idem could not read its own key three times in a row; nothing was written',
        HINT = 'Send the same request with the same key again.';
END $$;

-- Who might call the old one may call the new one: producers go on while the schema is upgraded.
DO $$
DECLARE
    before  pg_proc;
    after   regprocedure;
    caller  name;
BEGIN
    SELECT * INTO before FROM pg_proc WHERE pronamespace = 'idem'::regnamespace AND proname = 'accept' AND pronargs = 19;
    SELECT oid INTO after FROM pg_proc WHERE pronamespace = 'idem'::regnamespace AND proname = 'accept' AND pronargs = 21;
    IF before.proacl IS NULL THEN
        RETURN;
    END IF;
    EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || after || ' FROM PUBLIC';
    IF EXISTS (SELECT FROM aclexplode(before.proacl) a WHERE a.grantee = 0) THEN
        EXECUTE 'GRANT EXECUTE ON FUNCTION ' || after || ' TO PUBLIC';
    END IF;
    FOR caller IN SELECT r.rolname FROM aclexplode(before.proacl) a JOIN pg_roles r ON r.oid = a.grantee LOOP
        EXECUTE 'GRANT EXECUTE ON FUNCTION ' || after || ' TO ' || quote_ident(caller);
    END LOOP;
END $$;

DROP FUNCTION idem.accept(text, text, text, text, jsonb, text, text, text, text, uuid, text, text, jsonb, bytea,
                          interval, interval, integer, boolean, text);
