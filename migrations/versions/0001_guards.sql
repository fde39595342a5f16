-- The database refuses every transition that docs/design.md section 3 does not list, whoever writes. The listed pairs stand
-- in the WHEN of the triggers: a legal write never calls a function.

CREATE FUNCTION idem.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this %s of %s', TG_OP, TG_TABLE_NAME),
        DETAIL  = TG_ARGV[0],
        HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
END $$;

CREATE TRIGGER key_begins_in_progress BEFORE INSERT ON idem.idempotency_keys FOR EACH ROW
    WHEN (NEW.state <> 'in_progress')
    EXECUTE FUNCTION idem.refuse('a key begins in_progress');
CREATE TRIGGER key_transition_is_listed BEFORE UPDATE ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (
        ('in_progress', 'completed'), ('in_progress', 'failed_retryable'), ('in_progress', 'unknown'),
        ('unknown', 'completed'), ('unknown', 'in_progress'), ('unknown', 'failed_retryable'),
        ('failed_retryable', 'in_progress'), ('failed_retryable', 'completed'), ('failed_retryable', 'unknown'),
        ('failed_retryable', 'expired'), ('completed', 'expired')))
    EXECUTE FUNCTION idem.refuse('this change of state is not listed');
CREATE TRIGGER stored_answer_is_immutable BEFORE UPDATE ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.state = 'completed' AND NEW.state = 'completed' AND
          (OLD.response_status, OLD.response_headers, OLD.response_body, OLD.response_schema_version,
           OLD.completed_at)
          IS DISTINCT FROM
          (NEW.response_status, NEW.response_headers, NEW.response_body, NEW.response_schema_version,
           NEW.completed_at))
    EXECUTE FUNCTION idem.refuse('a stored answer is immutable');
CREATE TRIGGER key_keeps_its_identity BEFORE UPDATE ON idem.idempotency_keys FOR EACH ROW
    WHEN ((OLD.tenant_id, OLD.operation, OLD.idempotency_key, OLD.fingerprint, OLD.intent_id)
          IS DISTINCT FROM (NEW.tenant_id, NEW.operation, NEW.idempotency_key, NEW.fingerprint, NEW.intent_id))
    EXECUTE FUNCTION idem.refuse('a key keeps its scope, its fingerprint and its intent');
CREATE TRIGGER only_expired_keys_are_deleted BEFORE DELETE ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.state <> 'expired')
    EXECUTE FUNCTION idem.refuse('only an expired key is deleted');

CREATE TRIGGER outbox_row_begins_as_listed BEFORE INSERT ON idem.outbox FOR EACH ROW
    WHEN (NEW.status NOT IN ('pending', 'waiting', 'unfrozen', 'claimed')
          OR (NEW.status = 'claimed') <> NEW.inline)
    EXECUTE FUNCTION idem.refuse('an outbox row begins pending, waiting or unfrozen, or claimed if it is inline');
CREATE TRIGGER outbox_transition_is_listed BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
        ('unfrozen', 'pending'), ('unfrozen', 'waiting'), ('unfrozen', 'held'), ('unfrozen', 'unknown'),
        ('waiting', 'pending'), ('waiting', 'held'), ('waiting', 'awaiting'), ('waiting', 'unknown'),
        ('pending', 'claimed'), ('pending', 'held'), ('pending', 'awaiting'), ('pending', 'unknown'),
        ('claimed', 'pending'), ('claimed', 'held'), ('claimed', 'unknown'), ('claimed', 'awaiting'),
        ('unknown', 'awaiting'), ('unknown', 'held'),
        ('held', 'pending'), ('held', 'awaiting'), ('held', 'unknown')))
    EXECUTE FUNCTION idem.refuse('this change of status is not listed');
CREATE TRIGGER outbox_row_keeps_its_identity BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN (NEW.attempt < OLD.attempt OR NEW.generation < OLD.generation
          OR (OLD.id, OLD.intent_id, OLD.step, OLD.provider, OLD.account, OLD.origin)
             IS DISTINCT FROM (NEW.id, NEW.intent_id, NEW.step, NEW.provider, NEW.account, NEW.origin)
          OR (OLD.generation = NEW.generation AND OLD.provider_key <> NEW.provider_key))
    EXECUTE FUNCTION idem.refuse('attempt and generation only grow; row, account, origin and provider key stay');
CREATE TRIGGER quiet_time_is_never_lowered BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN (OLD.quiet_after IS NOT NULL AND (NEW.quiet_after IS NULL OR NEW.quiet_after < OLD.quiet_after))
    EXECUTE FUNCTION idem.refuse('quiet_after is only raised');

CREATE FUNCTION idem.row_left_for_good() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM idem.intents i WHERE i.id = OLD.intent_id AND i.state = 'completed')
       AND NOT EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = OLD.intent_id AND o.step > OLD.step)
       -- Or its intent rests for good: nobody can take it up again, because its key has expired.
       AND NOT (OLD.status = 'held' AND OLD.redrive_at IS NULL AND OLD.doubted_since IS NULL
                AND EXISTS (SELECT FROM idem.intents i WHERE i.id = OLD.intent_id AND i.state = 'failed_retryable')
                AND NOT EXISTS (SELECT FROM idem.idempotency_keys k
                                 WHERE k.intent_id = OLD.intent_id AND k.state <> 'expired')) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('idem refuses this DELETE of outbox row %s', OLD.id),
            DETAIL  = 'An outbox row leaves only when its step is completed or cancelled, or when it rests and its key '
                      'has expired.';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER outbox_row_leaves_when_done AFTER DELETE ON idem.outbox
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION idem.row_left_for_good();

CREATE TRIGGER intent_transition_is_listed BEFORE UPDATE ON idem.intents FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (
        ('in_progress', 'completed'), ('in_progress', 'failed_retryable'), ('in_progress', 'unknown'),
        ('unknown', 'completed'), ('unknown', 'in_progress'), ('unknown', 'failed_retryable'),
        ('failed_retryable', 'in_progress'), ('failed_retryable', 'completed'), ('failed_retryable', 'unknown')))
    EXECUTE FUNCTION idem.refuse('this change of state is not listed');
CREATE TRIGGER intents_are_kept BEFORE DELETE ON idem.intents FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('intents are the ledger');

-- Evidence and events: no UPDATE at all; a DELETE only of a row past its retention whose intent is final. The check
-- is made of the row, never of a session setting that any role could set.
CREATE FUNCTION idem.keep_what_may_be_asked() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    about uuid        := (to_jsonb(OLD) ->> TG_ARGV[0])::uuid;
    made  timestamptz := (to_jsonb(OLD) ->> TG_ARGV[1])::timestamptz;
BEGIN
    IF made < statement_timestamp() - (SELECT evidence_retention FROM idem.installation)
       -- An intent at rest without a row is final: its key has expired, and its row has left.
       AND EXISTS (SELECT FROM idem.intents WHERE id = about AND state IN ('completed', 'failed_retryable'))
       AND NOT EXISTS (SELECT FROM idem.outbox WHERE intent_id = about)
       AND NOT EXISTS (SELECT FROM idem.dead_letters WHERE intent_id = about AND resolved_at IS NULL) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this DELETE of %s', TG_TABLE_NAME),
        DETAIL  = 'It goes only when it is past its retention and its intent is final, with no open dead letter.';
END $$;

-- What people did, kept as long as evidence. An entry that is open has no time of its end, so it never goes.
CREATE FUNCTION idem.keep_until_retention() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    ended  timestamptz := (to_jsonb(OLD) ->> TG_ARGV[0])::timestamptz;
BEGIN
    IF ended < statement_timestamp() - (SELECT evidence_retention FROM idem.installation) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this DELETE of %s', TG_TABLE_NAME),
        DETAIL  = 'It goes only when it is past its retention, and a dead letter only when it is resolved.';
END $$;
CREATE TRIGGER dead_letters_are_kept BEFORE DELETE ON idem.dead_letters FOR EACH ROW
    EXECUTE FUNCTION idem.keep_until_retention('resolved_at');

CREATE TRIGGER evidence_is_never_changed BEFORE UPDATE ON idem.evidence FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('evidence is append-only');
CREATE TRIGGER evidence_is_kept BEFORE DELETE ON idem.evidence FOR EACH ROW
    EXECUTE FUNCTION idem.keep_what_may_be_asked('intent_id', 'at');
CREATE TRIGGER evidence_is_never_truncated BEFORE TRUNCATE ON idem.evidence
    EXECUTE FUNCTION idem.refuse('evidence is append-only');
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON idem.events FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('events are append-only');
CREATE TRIGGER events_are_kept BEFORE DELETE ON idem.events FOR EACH ROW
    EXECUTE FUNCTION idem.keep_what_may_be_asked('aggregateid', 'created_at');
CREATE TRIGGER events_are_never_truncated BEFORE TRUNCATE ON idem.events
    EXECUTE FUNCTION idem.refuse('events are append-only');
CREATE TRIGGER requests_are_written_once BEFORE UPDATE ON idem.requests FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('a frozen request is written once');

CREATE FUNCTION idem.keep_what_may_be_sent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM idem.outbox WHERE id = OLD.outbox_id) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('idem refuses this DELETE of %s', TG_TABLE_NAME),
            DETAIL  = 'A frozen request stays as long as its outbox row.';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER requests_are_kept BEFORE DELETE ON idem.requests FOR EACH ROW
    EXECUTE FUNCTION idem.keep_what_may_be_sent();

-- TRUNCATE fires no trigger of a row.
CREATE TRIGGER keys_are_never_truncated BEFORE TRUNCATE ON idem.idempotency_keys
    EXECUTE FUNCTION idem.refuse('only an expired key is deleted');
CREATE TRIGGER outbox_is_never_truncated BEFORE TRUNCATE ON idem.outbox
    EXECUTE FUNCTION idem.refuse('an outbox row leaves only when its step is done');
CREATE TRIGGER intents_are_never_truncated BEFORE TRUNCATE ON idem.intents
    EXECUTE FUNCTION idem.refuse('intents are the ledger');
CREATE TRIGGER requests_are_never_truncated BEFORE TRUNCATE ON idem.requests
    EXECUTE FUNCTION idem.refuse('a frozen request stays as long as its outbox row');
