-- The decision of accept, for every language alike: one call, one round trip, in the caller's transaction.
--
-- It never waits for another transaction (IB-126): a key that somebody else is inserting now is `in_progress`. It
-- writes no row that has a live claim or is unknown. Under REPEATABLE READ and SERIALIZABLE a concurrent winner
-- raises 40001, which is the caller's to repeat.

CREATE TYPE idem.decision AS (
    decision          text,         -- accepted, retrying, replay, in_progress, unknown, needs_operator, mismatch, expired
    intent_id         uuid,
    response_status   smallint,
    response_headers  jsonb,
    response_body     bytea,
    completed_at      timestamptz,
    expires_at        timestamptz,
    step              text,         -- the status of the open outbox row
    due_in            double precision,
    reasons           text[]
);

-- What the committed row says. Reads only.
CREATE FUNCTION idem.decide(k idem.idempotency_keys, p_fingerprint text) RETURNS idem.decision
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
        RETURN d;
    END IF;
    SELECT * INTO o FROM idem.outbox WHERE intent_id = k.intent_id;
    d.step := o.status;
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

-- The client's own retry of a key at rest: its frozen request goes back to work, one winner. NULL: somebody else
-- has the row (a redrive, a proof, another retry), so nothing was written.
CREATE FUNCTION idem.take_up_again(k idem.idempotency_keys, p_patience interval) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
    row_id uuid;
BEGIN
    SELECT o.id INTO row_id FROM idem.outbox o
     WHERE o.intent_id = k.intent_id AND o.status = 'held'
       AND NOT EXISTS (SELECT FROM idem.proofs p WHERE p.outbox_id = o.id)
       FOR UPDATE SKIP LOCKED;
    IF row_id IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE idem.idempotency_keys SET state = 'in_progress', last_error_code = NULL, last_error_message = NULL
     WHERE tenant_id = k.tenant_id AND operation = k.operation AND idempotency_key = k.idempotency_key
       AND intent_id = k.intent_id AND state = 'failed_retryable';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE idem.outbox SET status = 'pending', status_since = statement_timestamp(), redrive_at = NULL,
           available_at = statement_timestamp(), start_before = statement_timestamp() + p_patience
     WHERE id = row_id;
    UPDATE idem.intents SET state = 'in_progress', version = version + 1, wanted_at = statement_timestamp()
     WHERE id = k.intent_id;
    UPDATE idem.dead_letters SET resolved_at = statement_timestamp(), resolution = 'client_retry',
           resolved_by = current_user, note = 'the client sent its request again'
     WHERE intent_id = k.intent_id AND resolved_at IS NULL AND reason IN ('too_late', 'unrenderable');
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind,
                               from_state, to_state, from_status, to_status)
    SELECT o.intent_id, o.id, o.step, o.attempt, 'accept', 'retried',
           'failed_retryable', 'in_progress', 'held', 'pending' FROM idem.outbox o WHERE o.id = row_id;
    RETURN row_id;
END $$;

CREATE FUNCTION idem.accept(
    p_tenant text, p_operation text, p_key text, p_fingerprint text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_key_ttl interval, p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text
) RETURNS idem.decision LANGUAGE plpgsql AS $$
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
            IF d.decision <> 'failed_retryable' THEN
                RETURN d;
            END IF;
            d.decision := CASE WHEN idem.take_up_again(k, p_patience) IS NULL THEN 'in_progress' ELSE 'retrying' END;
            d.step := 'pending';
            d.due_in := 0;
            RETURN d;
        END IF;
        IF NOT ours THEN
            -- A committed winner is read above; this lock keeps us from waiting for one that has not committed.
            ours := pg_try_advisory_xact_lock(
                hashtextextended(p_tenant || chr(31) || p_operation || chr(31) || p_key, 0));
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
        intent := idem.uuid7();
        row_id := idem.uuid7();
        WITH key AS (
            INSERT INTO idem.idempotency_keys AS i
                   (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at)
            VALUES (p_tenant, p_operation, p_key, p_fingerprint, intent, statement_timestamp() + p_key_ttl)
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
