-- What is decided about a key, for every language alike. It never waits for another transaction (IB-126): a key that
-- somebody else is inserting now is `in_progress`. It writes no row that has a live claim or is unknown.

CREATE TYPE idem.decision AS (
    -- Of idem.decide: replay, in_progress, unknown, needs_operator, failed_retryable, mismatch, expired. Of accept also
    -- accepted, reserved, retrying, limited; of an inline call also begun, begun_again.
    decision            text,
    intent_id           uuid,
    response_status     smallint,
    response_headers    jsonb,
    response_body       bytea,
    completed_at        timestamptz,
    expires_at          timestamptz,
    status              text,       -- of the open outbox row
    due_in              double precision,
    reasons             text[],
    provider_reference  text,
    interim             jsonb,
    -- Of a mismatch: what the key was accepted with, which says how it was composed. The caller compares its request anew
    -- where it would compose it otherwise now.
    fingerprint         text
);

-- The reasons of the dead letters that a person must decide before a client's retry counts (outbox/domain/states.py).
CREATE FUNCTION idem.blocks_retry(p_reason text) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN p_reason IN ('rejected', 'crashes_worker', 'reconcile_exhausted', 'not_settleable', 'partial');

-- Whether a person must decide first. A client's retry waits for that, whoever calls what takes it up.
CREATE FUNCTION idem.needs_operator(p_intent uuid) RETURNS boolean LANGUAGE sql STABLE
    RETURN (SELECT bool_or(l.resolved_at IS NULL AND idem.blocks_retry(l.reason))
              FROM idem.dead_letters l WHERE l.intent_id = p_intent) IS TRUE;

-- Whether the definition of a flow still sends the open step of a row where it goes: no retry takes up what is not served.
CREATE FUNCTION idem.serves_step(p_plan jsonb, p_name text, p_provider text, p_account text) RETURNS boolean
LANGUAGE sql IMMUTABLE
    RETURN EXISTS (SELECT FROM jsonb_array_elements(p_plan) AS e (step)
                    WHERE (e.step ->> 'name', e.step ->> 'provider', e.step ->> 'account')
                        = (p_name, p_provider, p_account));

-- Whether a worker makes the call of an intent at rest, where its operation goes to this provider and account now (NULL: to
-- none). Where none does, a retry is refused: its row would wait in a queue that no worker serves.
-- Of a flow (p_plan) it is the open step that must still go where it went.
CREATE FUNCTION idem.is_served(p_intent uuid, p_provider text, p_account text, p_plan jsonb) RETURNS boolean
LANGUAGE sql STABLE
    RETURN NOT EXISTS (SELECT FROM idem.outbox o
                        WHERE o.intent_id = p_intent
                          AND CASE WHEN o.status <> 'held' THEN false
                                   WHEN o.inline THEN true
                                   WHEN o.step_name IS NOT NULL
                                       THEN p_plan IS NULL
                                            OR NOT idem.serves_step(p_plan, o.step_name, o.provider, o.account)
                                   ELSE p_plan IS NOT NULL
                                        OR (o.provider, o.account) IS DISTINCT FROM (p_provider, p_account) END);

-- What the committed row says. Reads only.
CREATE FUNCTION idem.decide(k idem.idempotency_keys, p_fingerprint text) RETURNS idem.decision
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d  idem.decision;
    o  idem.outbox;
BEGIN
    d.intent_id := k.intent_id;
    d.expires_at := k.expires_at;
    d.completed_at := k.completed_at;
    IF k.fingerprint <> p_fingerprint THEN
        d.decision := 'mismatch';
        d.fingerprint := k.fingerprint;
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
    d.status := o.status;
    d.provider_reference := o.provider_reference;
    IF o.status = 'awaiting' THEN
        SELECT n.interim INTO d.interim FROM idem.intents n WHERE n.id = k.intent_id;
    END IF;
    d.due_in := extract(epoch FROM greatest(coalesce(o.redrive_at, o.available_at), o.claimed_until)
                                   - statement_timestamp());
    IF d.due_in < 0 THEN
        d.due_in := 0;
    END IF;
    SELECT array_agg(l.reason ORDER BY l.reason) FILTER (WHERE l.resolved_at IS NULL AND idem.blocks_retry(l.reason))
      INTO d.reasons FROM idem.dead_letters l WHERE l.intent_id = k.intent_id;
    d.decision := CASE
        WHEN k.state = 'in_progress' AND o.status = 'claimed' AND o.claimed_until <= statement_timestamp()
            THEN 'unknown'
        WHEN k.state = 'in_progress' THEN 'in_progress'
        WHEN d.reasons IS NOT NULL   THEN 'needs_operator'
        WHEN k.state = 'unknown'     THEN 'unknown'
        ELSE 'failed_retryable' END;
    RETURN d;
END $$;

-- The advisory lock of a key that is being made. `p_seed` is of the installation's secret, so that no role knows the number
-- from the key. While it is held, pg_locks shows it to every role that may connect, and each of them can hold it too: that
-- it is held is a hint, and never an answer.
CREATE FUNCTION idem.key_lock(p_seed bigint, p_tenant text, p_operation text, p_key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    RETURN hashtextextended(p_tenant || chr(31) || p_operation || chr(31) || p_key, p_seed);

-- Whether a transaction that has not ended has written this key: asked where the key's lock is held. The key's index
-- knows, and no role without rights can make it say so. It is tried and taken back: it waits 10 ms for such a
-- transaction. Who holds the lock to make the key writes the key at once, so a key that is free is looked at again 20 ms
-- later. false: the key is free, or it has been committed meanwhile.
CREATE FUNCTION idem.key_is_uncommitted(p_tenant text, p_operation text, p_key text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    free  boolean;
BEGIN
    -- What locks the whole table is waited for as long as the session does.
    LOCK TABLE idem.idempotency_keys IN ROW EXCLUSIVE MODE;
    FOR try IN 1 .. 2 LOOP
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
        EXIT WHEN free IS NOT TRUE OR try = 2;
        PERFORM pg_sleep(0.02);
    END LOOP;
    RETURN false;
END $$;

-- A time that a client's library cannot read would make every list that shows it fail, so it is not written. The tables
-- refuse it too (0001_intents.sql, 0001_outbox.sql).
CREATE FUNCTION idem.refuse_far_time(p_name text, p_after interval) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF statement_timestamp() + p_after < timestamptz '0001-01-02 00:00+00'
       OR statement_timestamp() + p_after >= timestamptz '10000-01-01 00:00+00' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'datetime_field_overflow',
            MESSAGE = format('idem: %s is %s, which leads out of the years 1 to 9999; nothing was written', p_name, p_after),
            HINT    = 'Give a time of a thousand years at most.';
    END IF;
END $$;

-- The status with which a row goes to work where nothing blocks it: the part of `idem.next_status` for who promotes it. What
-- is not approved waits for that; what was never rendered, or has a burned provider key, goes to be rendered.
CREATE FUNCTION idem.ready_status(o idem.outbox) RETURNS text LANGUAGE sql STABLE
    RETURN CASE
        WHEN o.approval IN ('wanted', 'wanted_of_another') THEN 'approval'
        WHEN NOT o.key_burned AND coalesce(o.approval, 'given') = 'given'
         AND (SELECT r.outbox_id FROM idem.requests r
               WHERE r.outbox_id = o.id AND r.generation = o.generation LIMIT 1) IS NOT NULL
            THEN 'pending'
        ELSE 'unfrozen' END;

-- The status with which a row goes to work, from rest or by its approval: the one place of SQL that chooses it (in Python
-- `OutboxRow.queued_as`). What is not approved waits for that, whatever its order; then what is blocked by its ordering
-- key waits for its turn.
CREATE FUNCTION idem.next_status(o idem.outbox) RETURNS text LANGUAGE sql STABLE
    RETURN CASE
        WHEN o.approval IN ('wanted', 'wanted_of_another') THEN 'approval'
        WHEN idem.is_blocked(o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number) THEN 'waiting'
        ELSE idem.ready_status(o) END;

-- The client's own retry of a key at rest, one winner: its frozen request goes back to work, or to wait for its approval, or
-- for its turn by its ordering key; what was never rendered, or is at rest under a burned provider key, goes back to be
-- rendered, and not before anything sent under that key can act no more. With a token the row is an inline one, and its
-- caller holds it from now on. NULL: somebody else has the row (a redrive, a proof, another retry), or it is not for this
-- caller (an inline row for its own, any other for a worker); nothing was written.
CREATE FUNCTION idem.client_retry(
    k idem.idempotency_keys, p_patience interval, p_token uuid DEFAULT NULL, p_holder text DEFAULT NULL,
    p_lease interval DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_bitmapscan = off AS $$
DECLARE
    row_id  uuid;
BEGIN
    SELECT o.id INTO row_id FROM idem.outbox o
     WHERE o.intent_id = k.intent_id
       AND CASE WHEN o.status = 'held' THEN o.inline = (p_token IS NOT NULL) END
       AND NOT idem.needs_operator(k.intent_id)
       AND (SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id LIMIT 1) IS NULL
       AND (SELECT d.outbox_id FROM idem.doubts d WHERE d.outbox_id = o.id LIMIT 1) IS NULL
       -- Lost commits may have sent it, and the provider may have forgotten that: the sweeper makes it unknown.
       AND (o.doubted_since IS NULL
            OR NOT o.inline AND idem.memory_left(NULL, o.doubted_since, o.replay_window, NULL) > 0)
       FOR UPDATE SKIP LOCKED;
    IF row_id IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE idem.idempotency_keys SET state = 'in_progress', last_error_code = NULL, last_error_message = NULL
     WHERE tenant_id = k.tenant_id AND operation = k.operation AND idempotency_key = k.idempotency_key
       AND intent_id = k.intent_id AND state || '' = 'failed_retryable';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF p_token IS NULL THEN
        UPDATE idem.outbox o
           SET status = idem.next_status(o),
               status_since = statement_timestamp(), redrive_at = NULL,
               available_at = CASE WHEN o.key_burned THEN greatest(o.quiet_after, statement_timestamp())
                                   ELSE statement_timestamp() END,
               start_before = statement_timestamp() + p_patience
         WHERE o.id = row_id;
    ELSE
        UPDATE idem.outbox o
           SET status = 'claimed', status_since = statement_timestamp(), available_at = statement_timestamp(),
               start_before = statement_timestamp() + p_patience, first_sent_at = statement_timestamp(),
               -- Its caller sends it, with credentials of its own.
               sent_as = CASE WHEN o.denied_sent_at IS NOT NULL THEN o.sent_as END,
               attempt = o.attempt + 1, claim_token = p_token, claimed_by = p_holder,
               claimed_at = statement_timestamp(), claimed_until = statement_timestamp() + p_lease
         WHERE o.id = row_id;
    END IF;
    UPDATE idem.intents SET state = 'in_progress', version = version + 1, requested_at = statement_timestamp()
     WHERE id = k.intent_id;
    UPDATE idem.dead_letters SET resolved_at = statement_timestamp(), resolution = 'client_retry',
           resolved_by = session_user, note = 'the client sent its request again'
     WHERE intent_id = k.intent_id AND CASE WHEN resolved_at IS NULL THEN reason IN ('too_late', 'unrenderable') END;
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, from_state, to_state,
                               from_status, to_status, holder, claimed_at, claimed_until)
    SELECT o.intent_id, o.id, o.step, o.attempt, o.claim_token, 'accept', 'retried', 'failed_retryable', 'in_progress',
           'held', o.status, o.claimed_by, o.claimed_at, o.claimed_until
      FROM idem.outbox o WHERE o.id = row_id;
    RETURN row_id;
END $$;

-- By the names of the metric. A session that may write nothing is told the decision all the same. Where a key was
-- accepted with a fingerprint that leaves out other members, its caller composes the request anew and asks again: that
-- the first one does not match says nothing. What is at rest and stays there was not decided.
CREATE FUNCTION idem.count_decision(p_tenant text, p_operation text, p_fingerprint text, d idem.decision) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_read_only') = 'on' OR d.decision IN ('limited', 'failed_retryable') THEN
        RETURN;
    END IF;
    IF d.decision = 'mismatch'
       AND idem.fingerprint_exclusions(d.fingerprint) <> idem.fingerprint_exclusions(p_fingerprint) THEN
        RETURN;
    END IF;
    INSERT INTO idem.decisions_to_count (tenant_id, operation, decision)
    VALUES (p_tenant, p_operation,
            CASE WHEN d.decision IN ('accepted', 'reserved', 'begun')              THEN 'accepted'
                 WHEN d.decision = 'begun_again'                                   THEN 'retrying'
                 WHEN d.decision = 'in_progress' AND d.status = 'awaiting'           THEN 'awaiting'
                 ELSE d.decision END);
END $$;
