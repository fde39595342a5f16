-- What a row of the hot tables may be, whoever writes it: one function for each table, and one CHECK that calls it.
-- PostgreSQL parses each CHECK again in each statement that writes a row of its table, which cost an accept more than its
-- rows. What a function says is parsed once in a session. It names the rule that a row breaks, as a CHECK of that
-- name would. An expression is made ready anew in each transaction, at a cost by its length: so each function first asks
-- shortly whether the row is one that nearly all begin as, which breaks no rule, and asks for each rule only if it is not.

CREATE FUNCTION idem.refuse_row(p_table text, p_broken text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = p_table, CONSTRAINT = p_broken,
        MESSAGE = format('new row for relation "%s" violates check constraint "%s"', p_table, p_broken);
END $$;

-- By its columns, not by the row: a table with a CHECK of the whole row cannot be copied into partitions.
CREATE FUNCTION idem.check_intent(
    p_state text, p_outcome text, p_settled_at timestamptz, p_approval text, p_plan jsonb, p_recovery_point smallint,
    p_provider text, p_account text, p_provider_reference text, p_object_end text, p_requested_at timestamptz,
    p_created_at timestamptz
) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    broken  text;
BEGIN
    IF p_state = 'in_progress' AND p_approval IS NULL AND p_plan IS NULL AND p_recovery_point = 0
       AND num_nonnulls(p_outcome, p_settled_at, p_object_end) = 0
       AND greatest(p_requested_at, p_created_at) < timestamptz '10000-01-01 00:00+00'
       AND least(p_requested_at, p_created_at) >= timestamptz '0001-01-02 00:00+00' THEN
        RETURN true;
    END IF;
    broken := CASE
        WHEN NOT (p_approval IN ('undecided', 'wanted', 'wanted_of_another', 'given'))
            THEN 'intent_approval_is_known'
        WHEN NOT (p_plan IS NULL OR num_nonnulls(p_provider, p_account, p_provider_reference) = 0)
            THEN 'flow_has_no_call_of_its_own'
        WHEN NOT (p_recovery_point BETWEEN 0 AND coalesce(jsonb_array_length(p_plan), 0))
            THEN 'only_a_flow_has_a_recovery_point'
        WHEN NOT (p_state IN ('in_progress', 'completed', 'failed_retryable', 'unknown'))
            THEN 'intent_state_is_known'
        WHEN NOT (p_outcome IN ('succeeded', 'refused', 'cancelled', 'rejected', 'local'))
            THEN 'intent_outcome_is_known'
        WHEN NOT ((p_state = 'completed') = (p_outcome IS NOT NULL)) THEN 'completed_intent_says_how'
        WHEN NOT ((p_state = 'completed') = (p_settled_at IS NOT NULL)) THEN 'completed_intent_has_time'
        WHEN NOT (p_object_end IN ('open', 'succeeded', 'refused')) THEN 'object_end_is_known'
        WHEN NOT (p_object_end IS NULL OR p_outcome IS NOT DISTINCT FROM 'succeeded')
            THEN 'only_what_exists_may_end_later'
        WHEN NOT (greatest(p_requested_at, p_created_at, p_settled_at) < timestamptz '10000-01-01 00:00+00' AND
                  least(p_requested_at, p_created_at, p_settled_at) >= timestamptz '0001-01-02 00:00+00')
            THEN 'intent_times_are_in_range' END;
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RETURN idem.refuse_row('intents', broken);
END $$;
ALTER TABLE idem.intents ADD CONSTRAINT intent_is_right CHECK (idem.check_intent(
    state, outcome, settled_at, approval, plan, recovery_point, provider, account, provider_reference, object_end,
    requested_at, created_at));

CREATE FUNCTION idem.check_key(k idem.idempotency_keys) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    broken  text;
BEGIN
    IF k.state = 'in_progress'
       AND num_nonnulls(k.completed_at, k.response_status, k.response_headers, k.response_body) = 0
       AND length(k.idempotency_key) BETWEEN 1 AND 255 AND octet_length(k.tenant_id) <= 255
       AND greatest(k.created_at, k.expires_at) < timestamptz '10000-01-01 00:00+00'
       AND least(k.created_at, k.expires_at) >= timestamptz '0001-01-02 00:00+00' THEN
        RETURN true;
    END IF;
    broken := CASE
        WHEN NOT (length(k.idempotency_key) BETWEEN 1 AND 255) THEN 'key_length'
        WHEN NOT (octet_length(k.tenant_id) <= 255) THEN 'tenant_length'
        WHEN NOT (k.state IN ('in_progress', 'completed', 'failed_retryable', 'unknown', 'expired'))
            THEN 'key_state_is_known'
        WHEN NOT ((k.state IN ('completed', 'expired')) = (k.completed_at IS NOT NULL)) THEN 'final_key_has_time'
        WHEN NOT ((k.state = 'completed') = (k.response_status IS NOT NULL) AND (k.state = 'completed') =
                  (k.response_headers IS NOT NULL) AND (k.state = 'completed') = (k.response_body IS NOT NULL))
            THEN 'completed_key_has_answer'
        WHEN NOT (greatest(k.created_at, k.completed_at, k.expires_at) < timestamptz '10000-01-01 00:00+00' AND
                  least(k.created_at, k.completed_at, k.expires_at) >= timestamptz '0001-01-02 00:00+00')
            THEN 'key_times_are_in_range' END;
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RETURN idem.refuse_row('idempotency_keys', broken);
END $$;
ALTER TABLE idem.idempotency_keys ADD CONSTRAINT key_is_right CHECK (idem.check_key(idempotency_keys));

CREATE FUNCTION idem.check_row(o idem.outbox) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    broken  text;
BEGIN
    IF o.status = 'pending' AND o.step_name IS NULL AND o.step = 1
       AND num_nonnulls(o.approval, o.claim_token, o.claimed_by, o.claimed_at, o.claimed_until, o.started_at,
                        o.first_sent_at, o.imported_as, o.imported_sent_at, o.quiet_after, o.redrive_at, o.doubted_since,
                        o.denied_sent_at, o.scheduled_at, o.ordering_key, o.ordering_group, o.ordering_number) = 0
       AND NOT (o.inline OR o.key_burned OR o.cancel_sent OR o.refusal_holds)
       AND least(o.attempt, o.lookups, o.absences, o.failures, o.redrives, o.sweeps, o.replay_window) >= 0
       AND greatest(o.available_at, o.start_before, o.status_since) < timestamptz '10000-01-01 00:00+00'
       AND least(o.available_at, o.start_before, o.status_since) >= timestamptz '0001-01-02 00:00+00' THEN
        RETURN true;
    END IF;
    broken := CASE
        WHEN NOT (o.imported_as IN ('key', 'reference')) THEN 'outbox_imported_as_check'
        WHEN NOT (o.status IN ('approval', 'unfrozen', 'waiting', 'pending', 'claimed', 'unknown', 'awaiting', 'held'))
            THEN 'outbox_status_is_known'
        WHEN NOT (o.approval IN ('undecided', 'wanted', 'wanted_of_another', 'given')) THEN 'approval_is_known'
        -- Whatever writes it: what is not approved waits in no queue from which it is sent.
        WHEN NOT (CASE o.approval WHEN 'undecided' THEN o.status NOT IN ('approval', 'pending', 'claimed')
                                  WHEN 'wanted' THEN o.status IN ('approval', 'unknown', 'awaiting', 'held')
                                  WHEN 'wanted_of_another' THEN o.status IN ('approval', 'unknown', 'awaiting', 'held')
                                  ELSE o.status <> 'approval' END)
            THEN 'unapproved_row_is_not_queued'
        WHEN NOT (NOT o.inline OR o.approval IS NULL) THEN 'inline_rows_need_no_approval'
        WHEN NOT (o.status <> 'claimed' OR o.claim_token IS NOT NULL) THEN 'claimed_row_has_claim'
        WHEN NOT ((o.claim_token IS NULL) = (o.claimed_by IS NULL)
                  AND (o.claim_token IS NULL) = (o.claimed_at IS NULL)
                  AND (o.claim_token IS NULL) = (o.claimed_until IS NULL))
            THEN 'claim_is_whole'
        WHEN NOT (o.claim_token IS NULL OR o.status IN ('claimed', 'unknown', 'awaiting'))
            THEN 'claim_only_where_it_may_be'
        WHEN NOT (NOT o.inline OR o.status NOT IN ('approval', 'pending', 'waiting', 'unfrozen'))
            THEN 'inline_rows_are_not_queued'
        WHEN NOT (o.first_sent_at IS NULL OR o.status IN ('claimed', 'unknown', 'awaiting'))
            THEN 'queued_row_was_never_sent'
        WHEN NOT (o.redrive_at IS NULL OR o.status = 'held') THEN 'redrive_waits_in_held'
        WHEN NOT (o.status <> 'waiting' OR o.ordering_key IS NOT NULL) THEN 'waiting_row_has_order'
        WHEN NOT ((o.ordering_key IS NULL) = (o.ordering_group IS NULL)
                  AND (o.ordering_number IS NULL AND NOT o.refusal_holds OR o.ordering_key IS NOT NULL))
            THEN 'order_is_whole'
        WHEN NOT (least(o.attempt, o.lookups, o.absences, o.failures, o.redrives, o.sweeps, o.replay_window) >= 0)
            THEN 'counters_do_not_go_below_zero'
        WHEN NOT (NOT o.key_burned OR o.status IN ('approval', 'unfrozen', 'waiting', 'unknown', 'awaiting', 'held'))
            THEN 'burned_key_is_not_queued'
        WHEN NOT (o.key_burned OR NOT o.cancel_sent) THEN 'cancelled_key_is_burned'
        WHEN NOT (CASE WHEN o.step_name IS NULL THEN o.step = 1 ELSE o.step >= 1 AND NOT o.inline END)
            THEN 'step_of_a_flow_has_a_name'
        WHEN NOT (greatest(o.available_at, o.start_before, o.status_since, o.claimed_at, o.claimed_until, o.started_at,
                           o.first_sent_at, o.imported_sent_at, o.quiet_after, o.redrive_at, o.doubted_since,
                           o.denied_sent_at, o.scheduled_at) < timestamptz '10000-01-01 00:00+00'
                  AND least(o.available_at, o.start_before, o.status_since, o.claimed_at, o.claimed_until, o.started_at,
                            o.first_sent_at, o.imported_sent_at, o.quiet_after, o.redrive_at, o.doubted_since,
                            o.denied_sent_at, o.scheduled_at) >= timestamptz '0001-01-02 00:00+00')
            THEN 'row_times_are_in_range' END;
    IF broken IS NULL THEN
        RETURN true;
    END IF;
    RETURN idem.refuse_row('outbox', broken);
END $$;
ALTER TABLE idem.outbox ADD CONSTRAINT row_is_right CHECK (idem.check_row(outbox));
