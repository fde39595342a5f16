-- Accept in two halves around the caller's own writes: reserve writes the key alone, submit (or complete) the rest, in
-- one transaction. Nothing here waits for another transaction, and 40001 is the caller's to repeat.

-- True between reserve and submit only, so only in the transaction that reserved: the trigger below refuses to commit
-- it. The key names its intent before there is one, which is why the foreign key looks at COMMIT.
ALTER TABLE idem.idempotency_keys ADD COLUMN reserved boolean NOT NULL DEFAULT false;
ALTER TABLE idem.idempotency_keys ALTER CONSTRAINT idempotency_keys_intent_id_fkey DEFERRABLE INITIALLY DEFERRED;

-- It runs at COMMIT, with the rights of whoever commits: a producer of SQL alone may read no table of idem.
CREATE FUNCTION idem.refuse_open_reservation() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'idem.idempotency_keys'::regclass THEN
        RAISE insufficient_privilege USING MESSAGE = 'idem.refuse_open_reservation belongs to idem''s keys alone';
    ELSIF EXISTS (SELECT FROM idem.idempotency_keys k
                WHERE k.tenant_id = NEW.tenant_id AND k.operation = NEW.operation
                  AND k.idempotency_key = NEW.idempotency_key AND k.intent_id = NEW.intent_id AND k.reserved) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'idempotency_keys',
            CONSTRAINT = 'reserved_key_is_submitted',
            MESSAGE = format('idem: key %L of operation %L was reserved in this transaction, and nothing was submitted',
                             NEW.idempotency_key, NEW.operation),
            DETAIL  = 'The transaction is rolled back whole: the key is free, nothing was sent.',
            HINT    = 'Where reserve returns True, call submit, complete or refuse in the same transaction before it '
                      'commits. SET CONSTRAINTS ALL IMMEDIATE makes this check at once: run it after them.';
    END IF;
    RETURN NULL;
END $$;
-- Deferred triggers of a row fire in the order of their names: this one is to speak before the foreign key's own
-- ("RI_..."), whose message would be a riddle.
CREATE CONSTRAINT TRIGGER "A_reserved_key_is_submitted" AFTER INSERT ON idem.idempotency_keys
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.reserved) EXECUTE FUNCTION idem.refuse_open_reservation();
CREATE TRIGGER key_is_reserved_once BEFORE UPDATE ON idem.idempotency_keys FOR EACH ROW
    WHEN (NEW.reserved AND (NOT OLD.reserved OR NEW.state <> 'in_progress'))
    EXECUTE FUNCTION idem.refuse('a key is reserved by its INSERT alone, and is in_progress until it is submitted');

-- A row that was never rendered goes back to be rendered; an inline row is taken up again by its caller, nobody else.
DROP TRIGGER outbox_transition_is_listed ON idem.outbox;
CREATE TRIGGER outbox_transition_is_listed BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND ((OLD.status, NEW.status) NOT IN (
        ('unfrozen', 'pending'), ('unfrozen', 'waiting'), ('unfrozen', 'held'), ('unfrozen', 'unknown'),
        ('waiting', 'pending'), ('waiting', 'held'), ('waiting', 'awaiting'), ('waiting', 'unknown'),
        ('pending', 'claimed'), ('pending', 'held'), ('pending', 'awaiting'), ('pending', 'unknown'),
        ('claimed', 'pending'), ('claimed', 'held'), ('claimed', 'unknown'), ('claimed', 'awaiting'),
        ('unknown', 'awaiting'), ('unknown', 'held'),
        ('held', 'pending'), ('held', 'unfrozen'), ('held', 'claimed'), ('held', 'awaiting'), ('held', 'unknown'))
        OR (OLD.status = 'held' AND NEW.status = 'claimed' AND NOT NEW.inline)))
    EXECUTE FUNCTION idem.refuse('this change of status is not listed');
CREATE TRIGGER nobody_sends_nothing BEFORE INSERT ON idem.outbox FOR EACH ROW
    WHEN (NEW.provider = 'nobody' AND NOT NEW.inline)
    EXECUTE FUNCTION idem.refuse('an operation without a provider is completed by its caller: no worker may find it');

-- Whether a person must decide first. A client's retry waits for that, whoever calls what takes it up.
CREATE FUNCTION idem.needs_operator(p_intent uuid) RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM idem.dead_letters l
                    WHERE l.intent_id = p_intent AND l.resolved_at IS NULL
                      AND l.reason IN ('rejected', 'crashes_worker', 'reconcile_exhausted', 'not_settleable', 'partial'));

-- The client's own retry of a key at rest: its frozen request goes back to work, one winner; what was never rendered
-- goes back to be rendered. NULL: somebody else has the row (a redrive, a proof, another retry), or it is inline and
-- waits for its own caller, so nothing was written.
-- As the owner: whoever accepts needs no right to change a state that is not his own to change.
CREATE OR REPLACE FUNCTION idem.take_up_again(k idem.idempotency_keys, p_patience interval) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_id  uuid;
    next    text;
BEGIN
    SELECT o.id INTO row_id FROM idem.outbox o
     WHERE o.intent_id = k.intent_id AND o.status = 'held' AND NOT o.inline
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
    next := CASE WHEN EXISTS (SELECT r.outbox_id FROM idem.requests r WHERE r.outbox_id = row_id)
                 THEN 'pending' ELSE 'unfrozen' END;
    UPDATE idem.outbox SET status = next, status_since = statement_timestamp(), redrive_at = NULL,
           available_at = statement_timestamp(), start_before = statement_timestamp() + p_patience
     WHERE id = row_id;
    UPDATE idem.intents SET state = 'in_progress', version = version + 1, wanted_at = statement_timestamp()
     WHERE id = k.intent_id;
    UPDATE idem.dead_letters SET resolved_at = statement_timestamp(), resolution = 'client_retry',
           resolved_by = session_user, note = 'the client sent its request again'
     WHERE intent_id = k.intent_id AND resolved_at IS NULL AND reason IN ('too_late', 'unrenderable');
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind,
                               from_state, to_state, from_status, to_status)
    SELECT o.intent_id, o.id, o.step, o.attempt, 'accept', 'retried',
           'failed_retryable', 'in_progress', 'held', next FROM idem.outbox o WHERE o.id = row_id;
    RETURN row_id;
END $$;

REVOKE EXECUTE ON FUNCTION idem.take_up_again(idem.idempotency_keys, interval) FROM PUBLIC;
ALTER TABLE idem.evidence ALTER COLUMN database_role SET DEFAULT session_user;

-- The decision of accept, without what a new key needs further: `reserved` writes the key's row alone, and `intent_id`
-- is what submit or complete is called with. Every other decision is final for the caller: nothing is to be submitted.
-- `failed_retryable`: the key is at rest, and no worker makes its call where the operation goes now. Nothing was written.
CREATE FUNCTION idem.reserve(
    p_tenant text, p_operation text, p_key text, p_fingerprint text,
    p_key_ttl interval, p_patience interval, p_refuse_after_expiry boolean, p_may_create boolean DEFAULT true,
    p_provider text DEFAULT NULL, p_account text DEFAULT NULL
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
            row_id := idem.take_up_again(k, p_patience);
            d.decision := CASE WHEN row_id IS NULL THEN 'in_progress' ELSE 'retrying' END;
            IF row_id IS NOT NULL THEN
                SELECT o.status, 0 INTO d.step, d.due_in FROM idem.outbox o WHERE o.id = row_id;
            END IF;
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
        INSERT INTO idem.idempotency_keys AS i
               (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at, refuse_after_expiry,
                reserved)
        VALUES (p_tenant, p_operation, p_key, p_fingerprint, intent, statement_timestamp() + p_key_ttl,
                p_refuse_after_expiry, true)
        ON CONFLICT DO NOTHING RETURNING i.expires_at INTO d.expires_at;
        IF FOUND THEN
            d.decision := 'reserved';
            d.intent_id := intent;
            RETURN d;
        END IF;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
        MESSAGE = 'idem could not read its own key three times in a row; nothing was written',
        HINT = 'Send the same request with the same key again.';
END $$;

-- Raised by submit and complete. An open reservation is visible to nobody but its own transaction, so "not found" needs
-- no wait to be true.
CREATE FUNCTION idem.refuse_unreserved(p_operation text, p_key text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'idempotency_keys',
        CONSTRAINT = 'submitted_key_is_reserved',
        MESSAGE = format('idem: this transaction holds no reservation of key %L of operation %L', p_key, p_operation),
        DETAIL  = 'Nothing was written.',
        HINT    = 'submit, complete and refuse follow a reserve that returned True, once, in the same transaction. A '
                  'SAVEPOINT that was rolled back has taken its reservation with it.';
END $$;

-- Two intents under one provider key would be settled by one payment. The key of a new call is derived from its own
-- scope, so nobody can name the key of another one's call.
CREATE FUNCTION idem.refuse_other_key(p_tenant text, p_operation text, p_key text, p_provider_key uuid) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF p_provider_key IS DISTINCT FROM (SELECT idem.provider_key(i.secret, p_tenant, p_operation, p_key, 1, 1)
                                          FROM idem.installation i) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'outbox', CONSTRAINT = 'provider_key_is_derived',
            MESSAGE = format('idem: %s is not the provider key of key %L of operation %L', p_provider_key, p_key,
                             p_operation),
            DETAIL  = 'Nothing was written.',
            HINT    = 'Derive it from the secret of this installation, the tenant, the operation and the key. A call '
                      'that another system has sent under a key of its own is taken over with `idem import`.';
    END IF;
END $$;
REVOKE EXECUTE ON FUNCTION idem.refuse_other_key(text, text, text, uuid) FROM PUBLIC;

-- The second half of accept: intent, outbox row, frozen request and evidence of the key that this transaction reserved.
CREATE FUNCTION idem.submit(
    p_intent uuid, p_tenant text, p_operation text, p_key text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_id  uuid := idem.uuid7();
BEGIN
    UPDATE idem.idempotency_keys SET reserved = false
     WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key
       AND intent_id = p_intent AND reserved;
    IF NOT FOUND THEN
        PERFORM idem.refuse_unreserved(p_operation, p_key);
    END IF;
    PERFORM idem.refuse_other_key(p_tenant, p_operation, p_key, p_provider_key);
    PERFORM idem.refuse_far_time('p_patience', p_patience);
    WITH wanted AS (
        INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, label, params,
                                  wanted_at)
        VALUES (p_intent, p_tenant, p_operation, p_key, p_provider, p_account, p_label, p_params,
                statement_timestamp())
    ), queued AS (
        INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation,
                                 provider, account, origin, provider_key, replay_window, marks_start, traceparent)
        VALUES (row_id, p_intent, 'pending', statement_timestamp(), statement_timestamp(),
                statement_timestamp() + p_patience, p_operation, p_provider, p_account, p_origin, p_provider_key,
                p_replay_window, p_marks_start, p_traceparent)
    ), frozen AS (
        INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
        VALUES (row_id, p_intent, p_provider_key, p_provider, p_account, p_method, p_path, p_headers, p_body)
    )
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, to_state, to_status)
    VALUES (p_intent, row_id, 1, 0, 'accept', 'accepted', 'in_progress', 'pending');
END $$;

-- The end of a key that this transaction reserved, without any call: a local operation, whose effect is what the caller
-- wrote beside it, or the caller's own refusal. The answer is stored with it and is the same for ever after.
CREATE FUNCTION idem.complete(
    p_intent uuid, p_tenant text, p_operation text, p_key text, p_params jsonb, p_label text,
    p_outcome text, p_status smallint, p_headers jsonb, p_body bytea, p_answer_ttl interval
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_outcome IS NULL OR p_outcome NOT IN ('local', 'refused') THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation',
            MESSAGE = format('idem: a key is completed by its caller as local or refused, not as %L', p_outcome);
    END IF;
    PERFORM idem.refuse_far_time('p_answer_ttl', p_answer_ttl);
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, outcome, label, params, wanted_at,
                              settled_at)
    SELECT p_intent, p_tenant, p_operation, p_key, 'completed', p_outcome, p_label, p_params, statement_timestamp(),
           statement_timestamp()
      FROM idem.idempotency_keys
     WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key
       AND intent_id = p_intent AND reserved;
    IF NOT FOUND THEN
        PERFORM idem.refuse_unreserved(p_operation, p_key);
    END IF;
    UPDATE idem.idempotency_keys
       SET state = 'completed', reserved = false, response_status = p_status, response_headers = p_headers,
           response_body = p_body, completed_at = statement_timestamp(),
           response_schema_version = CASE
               WHEN p_headers ->> 'Idempotent-Answer-Version' ~ '^[1-9][0-9]{0,8}$'
                   THEN (p_headers ->> 'Idempotent-Answer-Version')::integer
               ELSE 1 END,
           expires_at = greatest(expires_at, statement_timestamp() + p_answer_ttl)
     WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key AND intent_id = p_intent;
    INSERT INTO idem.evidence (intent_id, step, attempt, source, kind, outcome, from_state, to_state)
    VALUES (p_intent, 1, 0, 'accept', 'completed', p_outcome, 'in_progress', 'completed');
    INSERT INTO idem.events (aggregateid, number, type, payload)
    VALUES (p_intent, 1, 'completed',
            jsonb_build_object('intent', p_intent, 'number', 1, 'tenant', p_tenant, 'operation', p_operation,
                               'label', p_label, 'state', 'completed', 'outcome', p_outcome,
                               'provider_reference', NULL, 'status', NULL));
END $$;
REVOKE EXECUTE ON FUNCTION idem.complete(uuid, text, text, text, jsonb, text, text, smallint, jsonb, bytea, interval)
    FROM PUBLIC;
