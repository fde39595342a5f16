-- Accept: whole, or in two halves around the caller's own writes. Nothing here waits for another transaction. Under
-- REPEATABLE READ and SERIALIZABLE a concurrent winner raises 40001, which is the caller's to repeat.

-- What every accept begins with: the decision about a key. A new key is written, and p_new is the decision: `reserved`
-- writes the key alone, `begun` (its caller makes the call) its intent too, and `accepted` (a worker does) all that there
-- is of it: intent, outbox row, frozen request and evidence, in one statement, so that no foreign key is open at the end of
-- it. Nothing of it is read again. p_under says which provider key it has: the `derived` one, one that is `checked` to be
-- that, or the `given` one. With p_count the decision is counted.
-- With an ordering key the row is written after the key, because it may wait for others (idem.queue_call): who waits for
-- the order holds the key as a row of the table, and never as a lock alone.
-- `failed_retryable`: the key is at rest, and no worker makes its call where the operation goes now. Nothing was written.
CREATE FUNCTION idem.accept_key(
    p_new text, p_tenant text, p_operation text, p_key text, p_fingerprint text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_key_ttl interval, p_patience interval, p_refuse_after_expiry boolean,
    p_may_create boolean, p_count boolean, p_plan jsonb DEFAULT NULL, p_approval text DEFAULT NULL,
    p_asked_by text DEFAULT NULL, p_under text DEFAULT NULL, p_origin text DEFAULT NULL, p_provider_key uuid DEFAULT NULL,
    p_method text DEFAULT NULL, p_path text DEFAULT NULL, p_headers jsonb DEFAULT NULL, p_body bytea DEFAULT NULL,
    p_replay_window integer DEFAULT NULL, p_marks_start boolean DEFAULT NULL, p_traceparent text DEFAULT NULL,
    p_ordering_group text DEFAULT NULL, p_ordering_key text DEFAULT NULL, p_refusal_holds boolean DEFAULT NULL
) RETURNS idem.decision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k        idem.idempotency_keys;
    d        idem.decision;
    ours     boolean;
    derived  uuid;
    intent   uuid;
    row_id   uuid;
    begins   text;
BEGIN
    -- The sweeper may delete the key between our INSERT and our SELECT: start again, three times.
    FOR round IN 1 .. 3 LOOP
        SELECT * INTO k FROM idem.idempotency_keys
         WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key;
        IF FOUND THEN
            d := idem.decide(k, p_fingerprint);
            IF d.decision = 'failed_retryable'
               AND idem.is_served(k.intent_id, CASE WHEN p_new <> 'begun' THEN p_provider END, p_account, p_plan) THEN
                row_id := idem.client_retry(k, p_patience);
                d.decision := CASE WHEN row_id IS NULL THEN 'in_progress' ELSE 'retrying' END;
                IF row_id IS NOT NULL THEN
                    SELECT o.status, 0 INTO d.status, d.due_in FROM idem.outbox o WHERE o.id = row_id;
                END IF;
            END IF;
            EXIT;
        ELSIF NOT p_may_create THEN
            d.decision := 'limited';
            EXIT;
        END IF;
        IF ours IS NULL THEN
            -- A committed winner is read above; this lock keeps us from waiting for one that has not committed.
            SELECT pg_try_advisory_xact_lock(idem.key_lock(i.lock_seed, p_tenant, p_operation, p_key)),
                   CASE WHEN p_under <> 'given'
                        THEN idem.provider_key(i.hmac_inner, i.hmac_outer, p_tenant, p_operation, p_key, 1, 1) END
              INTO ours, derived FROM idem.installation i;
            IF ours IS NOT TRUE AND idem.key_is_uncommitted(p_tenant, p_operation, p_key) THEN
                SELECT * INTO k FROM idem.idempotency_keys
                 WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key;
                IF FOUND THEN
                    d := idem.decide(k, p_fingerprint);
                END IF;
                IF coalesce(d.decision, 'failed_retryable') = 'failed_retryable' THEN
                    d.decision := 'in_progress';
                END IF;
                EXIT;
            END IF;
            ours := true;
            IF p_under = 'checked' AND p_provider_key IS DISTINCT FROM derived THEN
                PERFORM idem.refuse_other_key(p_operation, p_key, p_provider_key);
            END IF;
            IF NOT coalesce(greatest(p_key_ttl, p_patience) <= interval '1000 years'
                            AND least(p_key_ttl, p_patience) >= interval '0', false) THEN
                PERFORM idem.refuse_far_time('p_key_ttl', p_key_ttl), idem.refuse_far_time('p_patience', p_patience);
            END IF;
            IF p_new = 'accepted' AND p_ordering_key IS NULL THEN
                begins := CASE WHEN p_approval IN ('wanted', 'wanted_of_another') THEN 'approval'
                               WHEN p_method IS NULL THEN 'unfrozen' ELSE 'pending' END;
            END IF;
        END IF;
        intent := idem.uuid7();
        row_id := idem.uuid7();
        -- The id of a count is unique among counts alone, that of evidence among those of its intent.
        WITH key AS (
            INSERT INTO idem.idempotency_keys AS i
                   (tenant_id, operation, idempotency_key, fingerprint, intent_id, expires_at, refuse_after_expiry,
                    reserved)
            VALUES (p_tenant, p_operation, p_key, p_fingerprint, intent, statement_timestamp() + p_key_ttl,
                    p_refuse_after_expiry, p_new = 'reserved')
            ON CONFLICT DO NOTHING RETURNING i.expires_at
        ), wanted AS (
            INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, label, params, plan,
                                      approval, asked_by, requested_at)
            SELECT intent, p_tenant, p_operation, p_key, CASE WHEN p_plan IS NULL THEN p_provider END,
                   CASE WHEN p_plan IS NULL THEN p_account END, p_label, p_params, p_plan,
                   p_approval, p_asked_by, statement_timestamp() FROM key WHERE p_new <> 'reserved'
        ), queued AS (
            INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation,
                                     provider, account, origin, provider_key, replay_window, marks_start, traceparent,
                                     step_name, approval)
            SELECT row_id, intent, begins, statement_timestamp(), statement_timestamp(),
                   statement_timestamp() + p_patience, p_operation, p_provider, p_account, p_origin,
                   CASE p_under WHEN 'given' THEN p_provider_key ELSE derived END, p_replay_window, p_marks_start,
                   p_traceparent, p_plan -> 0 ->> 'name', p_approval FROM key WHERE begins IS NOT NULL
        ), frozen AS (
            INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
            SELECT row_id, intent, CASE p_under WHEN 'given' THEN p_provider_key ELSE derived END, p_provider, p_account,
                   p_method, p_path, p_headers, p_body FROM key WHERE begins IS NOT NULL AND p_method IS NOT NULL
        ), said AS (
            INSERT INTO idem.evidence (intent_id, id, outbox_id, step, attempt, source, kind, to_state, to_status, details)
            SELECT intent, row_id, row_id, 1, 0, 'accept', 'accepted', 'in_progress', begins,
                   CASE WHEN begins <> 'approval' THEN '{}'
                        ELSE jsonb_strip_nulls(jsonb_build_object('approval', p_approval, 'asked_by', p_asked_by)) END
              FROM key WHERE begins IS NOT NULL
        ), counted AS (
            INSERT INTO idem.decisions_to_count (id, tenant_id, operation, decision)
            SELECT intent, p_tenant, p_operation, 'accepted' FROM key WHERE p_count
        )
        SELECT key.expires_at INTO d.expires_at FROM key;
        IF FOUND THEN
            d.decision := p_new;
            d.intent_id := intent;
            IF p_new = 'accepted' THEN
                d.status := coalesce(begins, idem.queue_call(
                    intent, p_operation, p_provider, p_account, p_origin,
                    CASE p_under WHEN 'given' THEN p_provider_key ELSE derived END, p_method, p_path, p_headers, p_body,
                    p_patience, p_replay_window, p_marks_start, p_traceparent, p_plan, p_ordering_group, p_ordering_key,
                    p_refusal_holds, p_approval));
                d.due_in := 0;
            END IF;
            RETURN d;
        END IF;
    END LOOP;
    IF d.decision IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = 'idem could not read its own key three times in a row; nothing was written',
            HINT = 'Send the same request with the same key again.';
    END IF;
    IF p_count THEN
        PERFORM idem.count_decision(p_tenant, p_operation, p_fingerprint, d);
    END IF;
    RETURN d;
END $$;

-- Row, frozen request and evidence of an intent that is there already: after submit, and of an accept with an ordering key.
-- Without one accept_key writes the same in its one statement: change both. Without a method there is no request yet: a
-- worker renders it. `p_approval` as in the table. The status of the row comes back; with an ordering key it may wait for
-- others, and so does this call for open transactions that have accepted something of the same key. What waits for its
-- approval has its place in the order too.
CREATE FUNCTION idem.queue_call(
    p_intent uuid, p_operation text, p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text, p_plan jsonb,
    p_ordering_group text, p_ordering_key text, p_refusal_holds boolean, p_approval text
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_id      uuid := idem.uuid7();
    begins      text := CASE WHEN p_approval IN ('wanted', 'wanted_of_another') THEN 'approval'
                             WHEN p_method IS NULL THEN 'unfrozen' ELSE 'pending' END;
    ordered_in  text := CASE WHEN p_ordering_key IS NOT NULL THEN coalesce(p_ordering_group, p_operation) END;
    place       bigint;
    blocked     boolean;
BEGIN
    IF p_ordering_key IS NOT NULL THEN
        SELECT t.place, t.blocked INTO place, blocked
          FROM idem.intents n CROSS JOIN LATERAL idem.join_order(n.tenant_id, ordered_in, p_ordering_key) AS t
         WHERE n.id = p_intent;
        IF blocked AND begins <> 'approval' THEN
            begins := 'waiting';
        END IF;
    END IF;
    WITH queued AS (
        INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation,
                                 provider, account, origin, provider_key, replay_window, marks_start, traceparent,
                                 step_name, ordering_group, ordering_key, ordering_number, refusal_holds, approval)
        VALUES (row_id, p_intent, begins, statement_timestamp(), statement_timestamp(),
                statement_timestamp() + p_patience, p_operation, p_provider, p_account, p_origin, p_provider_key,
                p_replay_window, p_marks_start, p_traceparent, p_plan -> 0 ->> 'name', ordered_in, p_ordering_key, place,
                coalesce(p_refusal_holds, true) AND p_ordering_key IS NOT NULL, p_approval)
    ), frozen AS (
        INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers, body)
        SELECT row_id, p_intent, p_provider_key, p_provider, p_account, p_method, p_path, p_headers, p_body
         WHERE p_method IS NOT NULL
    )
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, to_state, to_status, details)
    VALUES (p_intent, row_id, 1, 0, 'accept', 'accepted', 'in_progress', begins,
            CASE WHEN begins <> 'approval' THEN '{}'
                 ELSE jsonb_strip_nulls(jsonb_build_object('approval', p_approval, 'asked_by', (
                          SELECT n.asked_by FROM idem.intents n WHERE n.id = p_intent))) END);
    RETURN begins;
END $$;

-- Two intents under one provider key would be settled by one payment. The key of a new call is derived from its own
-- scope, so no caller can name the key of another one's call. Raised by everything that accepts one.
CREATE FUNCTION idem.refuse_other_key(p_operation text, p_key text, p_provider_key uuid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'outbox', CONSTRAINT = 'provider_key_is_derived',
        MESSAGE = format('idem: %s is not the provider key of key %L of operation %L', p_provider_key, p_key,
                         p_operation),
        DETAIL  = 'Nothing was written.',
        HINT    = 'Derive it from the secret of this installation, the tenant, the operation and the key. A call '
                  'that another system has sent under a key of its own is taken over with `idem import`.';
END $$;

-- The first half of accept around the caller's own writes: it writes the key alone, and submit (or complete) the rest, in
-- one transaction. `reserved`: `intent_id` is what submit or complete is called with. Every other decision is final for
-- the caller: nothing is to be submitted.
CREATE FUNCTION idem.reserve(
    p_tenant text, p_operation text, p_key text, p_fingerprint text,
    p_key_ttl interval, p_patience interval, p_refuse_after_expiry boolean, p_may_create boolean DEFAULT true,
    p_provider text DEFAULT NULL, p_account text DEFAULT NULL, p_count boolean DEFAULT true,
    p_plan jsonb DEFAULT NULL
) RETURNS idem.decision LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN idem.accept_key(
        'reserved', p_tenant, p_operation, p_key, p_fingerprint, NULL, NULL, p_provider, p_account, p_key_ttl, p_patience,
        p_refuse_after_expiry, p_may_create, p_count, p_plan);
END $$;

-- Raised by submit and complete. An open reservation is visible to its own transaction alone, so "not found" needs
-- no wait to be true.
CREATE FUNCTION idem.refuse_unreserved(p_operation text, p_key text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'idempotency_keys',
        CONSTRAINT = 'submitted_key_is_reserved',
        MESSAGE = format('idem: this transaction holds no reservation of key %L of operation %L', p_key, p_operation),
        DETAIL  = 'Nothing was written.',
        HINT    = 'submit, complete and refuse follow a reserve that returned True, once, in the same transaction. A '
                  'SAVEPOINT that was rolled back has taken its reservation with it.';
END $$;

-- The second half: intent, outbox row, frozen request and evidence of the key that this transaction reserved.
CREATE FUNCTION idem.submit(
    p_intent uuid, p_tenant text, p_operation text, p_key text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text, p_plan jsonb DEFAULT NULL,
    p_ordering_group text DEFAULT NULL, p_ordering_key text DEFAULT NULL, p_refusal_holds boolean DEFAULT false,
    p_approval text DEFAULT NULL, p_asked_by text DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE idem.idempotency_keys SET reserved = false
     WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key
       AND intent_id = p_intent AND reserved;
    IF NOT FOUND THEN
        PERFORM idem.refuse_unreserved(p_operation, p_key);
    END IF;
    IF p_provider_key IS DISTINCT FROM (
        SELECT idem.provider_key(i.hmac_inner, i.hmac_outer, p_tenant, p_operation, p_key, 1, 1)
          FROM idem.installation i) THEN
        PERFORM idem.refuse_other_key(p_operation, p_key, p_provider_key);
    END IF;
    PERFORM idem.refuse_far_time('p_patience', p_patience);
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, label, params, plan, asked_by,
                              requested_at)
    VALUES (p_intent, p_tenant, p_operation, p_key, CASE WHEN p_plan IS NULL THEN p_provider END,
            CASE WHEN p_plan IS NULL THEN p_account END, p_label, p_params, p_plan, p_asked_by, statement_timestamp());
    PERFORM idem.queue_call(p_intent, p_operation, p_provider, p_account, p_origin, p_provider_key, p_method, p_path,
                            p_headers, p_body, p_patience, p_replay_window, p_marks_start, p_traceparent, p_plan,
                            p_ordering_group, p_ordering_key, p_refusal_holds, p_approval);
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
    IF idem.answer_problem(p_status, p_headers, p_body) IS NOT NULL THEN
        PERFORM idem.refuse_answer(idem.answer_problem(p_status, p_headers, p_body));
    END IF;
    INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, state, outcome, label, params, requested_at,
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

-- Both halves at once, under the provider key that the caller names: what the system before has sent a call under. It is
-- for the import, which only a daemon's role may do. For everybody else the key is the derived one.
-- As the owner, like every function that writes a key, an intent or a row of the outbox: no role of a program may insert
-- into these tables, so none can write what no accept has decided.
CREATE FUNCTION idem.accept_under_key(
    p_tenant text, p_operation text, p_key text, p_fingerprint text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_key_ttl interval, p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text,
    p_may_create boolean DEFAULT true, p_refuse_after_expiry boolean DEFAULT false, p_plan jsonb DEFAULT NULL,
    p_ordering_group text DEFAULT NULL, p_ordering_key text DEFAULT NULL, p_refusal_holds boolean DEFAULT false,
    p_approval text DEFAULT NULL, p_asked_by text DEFAULT NULL
) RETURNS idem.decision LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN idem.accept_key(
        'accepted', p_tenant, p_operation, p_key, p_fingerprint, p_params, p_label, p_provider, p_account, p_key_ttl,
        p_patience, p_refuse_after_expiry, p_may_create, false, p_plan, p_approval, p_asked_by, 'given', p_origin,
        p_provider_key, p_method, p_path, p_headers, p_body, p_replay_window, p_marks_start, p_traceparent,
        p_ordering_group, p_ordering_key, p_refusal_holds);
END $$;

-- Accept in one call, one round trip, in the caller's transaction.
CREATE FUNCTION idem.accept(
    p_tenant text, p_operation text, p_key text, p_fingerprint text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_key_ttl interval, p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text,
    p_may_create boolean DEFAULT true, p_refuse_after_expiry boolean DEFAULT false, p_count boolean DEFAULT true,
    p_plan jsonb DEFAULT NULL, p_ordering_group text DEFAULT NULL, p_ordering_key text DEFAULT NULL,
    p_refusal_holds boolean DEFAULT false, p_approval text DEFAULT NULL, p_asked_by text DEFAULT NULL
) RETURNS idem.decision LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN idem.accept_key(
        'accepted', p_tenant, p_operation, p_key, p_fingerprint, p_params, p_label, p_provider, p_account, p_key_ttl,
        p_patience, p_refuse_after_expiry, p_may_create, p_count, p_plan, p_approval, p_asked_by, 'checked', p_origin,
        p_provider_key, p_method, p_path, p_headers, p_body, p_replay_window, p_marks_start, p_traceparent,
        p_ordering_group, p_ordering_key, p_refusal_holds);
END $$;
