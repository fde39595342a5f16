-- What a client is told of an object that is not at its end, and what its end is after the key was completed.
--
-- `interim`: of an `awaiting` row; gone when the row is. `object_end`: NULL where the completion was the end of the
-- object; else what is known of it since: still `open`, or the end that it came to. The rows that are there have neither,
-- so nothing is to be validated, and no ledger is read under a strong lock.

ALTER TABLE idem.intents
    ADD COLUMN interim     jsonb,
    ADD COLUMN object_end  text COLLATE "C",
    ADD CONSTRAINT object_end_is_known CHECK (object_end IN ('open', 'succeeded', 'refused')),
    ADD CONSTRAINT only_what_exists_may_end_later CHECK (object_end IS NULL OR outcome IS NOT DISTINCT FROM 'succeeded');

-- A proof is stored as it was seen; whether it completes the key is decided when it is applied. So one that is open
-- may come with an answer, or with an interim answer.
ALTER TABLE idem.proofs
    ADD COLUMN interim jsonb,
    DROP CONSTRAINT proofs_outcome_check,
    DROP CONSTRAINT final_proof_has_answer,
    ADD CONSTRAINT proofs_outcome_check CHECK (outcome IN ('succeeded', 'interim', 'refused', 'pending')),
    ADD CONSTRAINT final_proof_has_answer
        CHECK (outcome IN ('pending', 'interim') OR num_nulls(answer_status, answer_headers, answer_body) = 0);

ALTER TABLE idem.webhook_events
    DROP CONSTRAINT webhook_verdict_is_known,
    ADD CONSTRAINT webhook_verdict_is_known CHECK (verdict IN (
        'applied', 'stored', 'agrees', 'later_fact', 'conflict', 'noted', 'ignored', 'unmatched', 'deferred'));

ALTER TYPE idem.decision ADD ATTRIBUTE interim jsonb;
-- Of a mismatch: what the key was accepted with, which says how it was composed. The caller compares its request anew
-- where it would compose it otherwise now.
ALTER TYPE idem.decision ADD ATTRIBUTE fingerprint text;

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
    d.step := o.status;
    d.provider_reference := o.provider_reference;
    IF o.status = 'awaiting' THEN
        SELECT n.interim INTO d.interim FROM idem.intents n WHERE n.id = k.intent_id;
    END IF;
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
