-- Inline operations: the caller's own code makes the call, so its row is born `claimed`, and a row at rest is taken up by
-- the client's own retry. Both commit before that code runs. The decisions are those of idem.reserve and idem.decide.

-- The client's own retry of an inline row at rest: the caller holds it from now on, one winner. NULL: somebody else has
-- the row (a proof, another retry, a transaction), or no caller may make this call; nothing was written.
CREATE FUNCTION idem.take_up_inline(
    k idem.idempotency_keys, p_patience interval, p_token uuid, p_holder text, p_lease interval
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_id uuid;
BEGIN
    SELECT o.id INTO row_id FROM idem.outbox o
     WHERE o.intent_id = k.intent_id AND o.inline AND o.status = 'held'
       AND NOT idem.needs_operator(k.intent_id)
       AND NOT EXISTS (SELECT FROM idem.proofs p WHERE p.outbox_id = o.id)
       AND NOT EXISTS (SELECT FROM idem.doubts d WHERE d.outbox_id = o.id)
       AND o.doubted_since IS NULL
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
    UPDATE idem.outbox o
       SET status        = 'claimed',
           status_since  = statement_timestamp(),
           available_at  = statement_timestamp(),
           start_before  = statement_timestamp() + p_patience,
           first_sent_at = statement_timestamp(),
           -- Its caller sends it, with credentials of its own.
           sent_as       = CASE WHEN o.word_since IS NOT NULL THEN o.sent_as END,
           attempt       = o.attempt + 1,
           claim_token   = p_token,
           claimed_by    = p_holder,
           claimed_at    = statement_timestamp(),
           claimed_until = statement_timestamp() + p_lease
     WHERE o.id = row_id;
    UPDATE idem.intents SET state = 'in_progress', version = version + 1, wanted_at = statement_timestamp()
     WHERE id = k.intent_id;
    UPDATE idem.dead_letters SET resolved_at = statement_timestamp(), resolution = 'client_retry',
           resolved_by = session_user, note = 'the client sent its request again'
     WHERE intent_id = k.intent_id AND resolved_at IS NULL AND reason IN ('too_late', 'unrenderable');
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, from_state, to_state,
                               from_status, to_status, holder, claimed_at, claimed_until)
    SELECT o.intent_id, o.id, o.step, o.attempt, o.claim_token, 'accept', 'retried', 'failed_retryable', 'in_progress',
           'held', 'claimed', o.claimed_by, o.claimed_at, o.claimed_until
      FROM idem.outbox o WHERE o.id = row_id;
    RETURN row_id;
END $$;

-- Decide about one request of an inline operation. `begun` and `begun_again`: the call is the caller's to make, under
-- p_token, until lease_left has passed. The same token again finds what it has claimed: the answer to a COMMIT gets lost.
CREATE FUNCTION idem.begin_inline(
    p_tenant text, p_operation text, p_key text, p_fingerprint text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid, p_body bytea,
    p_key_ttl interval, p_patience interval, p_refuse_after_expiry boolean, p_traceparent text,
    p_token uuid, p_holder text, p_lease interval,
    OUT decided idem.decision, OUT row_id uuid, OUT row_attempt integer, OUT row_key uuid, OUT lease_left double precision
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k  idem.idempotency_keys;
    o  idem.outbox;
BEGIN
    SELECT * INTO k FROM idem.idempotency_keys
     WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key;
    IF FOUND THEN
        decided := idem.decide(k, p_fingerprint);
        IF decided.decision = 'failed_retryable' AND EXISTS (
            SELECT FROM idem.outbox b WHERE b.intent_id = k.intent_id AND b.inline) THEN
            row_id := idem.take_up_inline(k, p_patience, p_token, p_holder, p_lease);
            decided.decision := CASE WHEN row_id IS NULL THEN 'in_progress' ELSE 'begun_again' END;
        ELSIF decided.decision = 'in_progress' THEN
            SELECT b.id INTO row_id FROM idem.outbox b
             WHERE b.intent_id = k.intent_id AND b.status = 'claimed' AND b.claim_token = p_token;
            IF FOUND THEN
                decided.decision := 'begun';
            END IF;
        END IF;
    END IF;
    -- idem.reserve counts what it decides, and what this token has begun was counted then.
    IF decided.decision <> 'begun' THEN
        PERFORM idem.count_decision(p_tenant, p_operation, p_fingerprint, decided);
    END IF;
    IF decided.decision IS NULL OR decided.decision = 'failed_retryable' THEN
        decided := idem.reserve(p_tenant, p_operation, p_key, p_fingerprint, p_key_ttl, p_patience,
                                p_refuse_after_expiry);
        IF decided.decision = 'reserved' THEN
            PERFORM idem.refuse_far_time('p_lease', p_lease);
            PERFORM idem.refuse_other_key(p_tenant, p_operation, p_key, p_provider_key);
            decided.decision := 'begun';
            row_id := idem.uuid7();
            INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, label, params,
                                      wanted_at)
            VALUES (decided.intent_id, p_tenant, p_operation, p_key, p_provider, p_account, p_label, p_params,
                    statement_timestamp());
            INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation,
                                     provider, account, origin, provider_key, inline, traceparent, attempt,
                                     first_sent_at, claim_token, claimed_by, claimed_at, claimed_until)
            VALUES (row_id, decided.intent_id, 'claimed', statement_timestamp(), statement_timestamp(),
                    statement_timestamp() + p_patience, p_operation, p_provider, p_account, p_origin, p_provider_key,
                    true, p_traceparent, 1, statement_timestamp(), p_token, p_holder, statement_timestamp(),
                    statement_timestamp() + p_lease);
            -- Nobody sends this. It is how a proof finds the row by the key that the caller has sent.
            INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers,
                                       body)
            VALUES (row_id, decided.intent_id, p_provider_key, p_provider, p_account, 'INLINE', p_operation, '{}',
                    p_body);
            UPDATE idem.idempotency_keys SET reserved = false
             WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key;
            INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, to_state, to_status,
                                       holder, claimed_at, claimed_until)
            VALUES (decided.intent_id, row_id, 1, 1, p_token, 'accept', 'accepted', 'in_progress', 'claimed', p_holder,
                    statement_timestamp(), statement_timestamp() + p_lease);
        END IF;
    END IF;
    IF row_id IS NOT NULL THEN
        SELECT * INTO o FROM idem.outbox b WHERE b.id = row_id;
        row_attempt := o.attempt;
        row_key := o.provider_key;
        lease_left := extract(epoch FROM o.claimed_until - statement_timestamp());
    END IF;
END $$;
