-- Inline operations: the caller's own code makes the call, so its row is born `claimed`, and a row at rest is taken up by
-- the client's own retry. Both commit before that code runs. The decisions are those of idem.accept_key and idem.decide.

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
    k      idem.idempotency_keys;
    o      idem.outbox;
    known  boolean := false;  -- begun by this token before, and counted then
BEGIN
    SELECT * INTO k FROM idem.idempotency_keys
     WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = p_key;
    IF FOUND THEN
        decided := idem.decide(k, p_fingerprint);
        IF decided.decision = 'failed_retryable' AND EXISTS (
            SELECT FROM idem.outbox b WHERE b.intent_id = k.intent_id AND b.inline) THEN
            row_id := idem.client_retry(k, p_patience, p_token, p_holder, p_lease);
            decided.decision := CASE WHEN row_id IS NULL THEN 'in_progress' ELSE 'begun_again' END;
        ELSIF decided.decision = 'in_progress' THEN
            SELECT b.id INTO row_id FROM idem.outbox b
             WHERE b.intent_id = k.intent_id AND b.status = 'claimed' AND b.claim_token = p_token;
            known := FOUND;
            IF known THEN
                decided.decision := 'begun';
            END IF;
        END IF;
    END IF;
    IF decided.decision IS NULL OR decided.decision = 'failed_retryable' THEN
        decided := idem.accept_key('begun', p_tenant, p_operation, p_key, p_fingerprint, p_params, p_label, p_provider,
                                   p_account, p_key_ttl, p_patience, p_refuse_after_expiry, true, false);
        IF decided.decision = 'begun' THEN
            PERFORM idem.refuse_far_time('p_lease', p_lease);
            IF p_provider_key IS DISTINCT FROM (
                SELECT idem.provider_key(s.hmac_inner, s.hmac_outer, p_tenant, p_operation, p_key, 1, 1)
                  FROM idem.installation s) THEN
                PERFORM idem.refuse_other_key(p_operation, p_key, p_provider_key);
            END IF;
            row_id := idem.uuid7();
            INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation,
                                     provider, account, origin, provider_key, inline, traceparent, attempt,
                                     first_sent_at, claim_token, claimed_by, claimed_at, claimed_until)
            VALUES (row_id, decided.intent_id, 'claimed', statement_timestamp(), statement_timestamp(),
                    statement_timestamp() + p_patience, p_operation, p_provider, p_account, p_origin, p_provider_key,
                    true, p_traceparent, 1, statement_timestamp(), p_token, p_holder, statement_timestamp(),
                    statement_timestamp() + p_lease);
            -- No request carries this. It is how a proof finds the row by the key that the caller has sent.
            INSERT INTO idem.requests (outbox_id, intent_id, provider_key, provider, account, method, path, headers,
                                       body)
            VALUES (row_id, decided.intent_id, p_provider_key, p_provider, p_account, 'INLINE', p_operation, '{}',
                    p_body);
            INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, token, source, kind, to_state, to_status,
                                       holder, claimed_at, claimed_until)
            VALUES (decided.intent_id, row_id, 1, 1, p_token, 'accept', 'accepted', 'in_progress', 'claimed', p_holder,
                    statement_timestamp(), statement_timestamp() + p_lease);
        END IF;
    END IF;
    IF NOT known THEN
        PERFORM idem.count_decision(p_tenant, p_operation, p_fingerprint, decided);
    END IF;
    IF row_id IS NOT NULL THEN
        SELECT * INTO o FROM idem.outbox b WHERE b.id = row_id;
        row_attempt := o.attempt;
        row_key := o.provider_key;
        lease_left := extract(epoch FROM o.claimed_until - statement_timestamp());
    END IF;
END $$;
