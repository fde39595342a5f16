-- The database refuses every transition that docs/states.md does not list, whoever writes. The listed pairs are
-- in the WHEN of the triggers: a legal write never calls a function. A pair is one text: PostgreSQL reads each condition
-- anew in each statement, and a list of texts is a tenth of a list of pairs. Here: the functions that refuse, keys and
-- intents.

CREATE FUNCTION idem.refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this %s of %s', TG_OP, TG_TABLE_NAME),
        DETAIL  = TG_ARGV[0],
        HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
END $$;

-- What idem's own flows never change, no role of a program may change. The owner of a table may switch its triggers off, so
-- this does not stop the owner, who repairs by hand, or the functions that run as the owner.
CREATE FUNCTION idem.refuse_unless_owner() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'MEMBER') THEN
        IF TG_OP = 'DELETE' THEN
            RETURN OLD;
        END IF;
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this %s of %s', TG_OP, TG_TABLE_NAME),
        DETAIL  = TG_ARGV[0],
        HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
END $$;
CREATE TRIGGER key_transition_is_listed AFTER UPDATE OF state ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND OLD.state || ' ' || NEW.state NOT IN (
        'in_progress completed', 'in_progress failed_retryable', 'in_progress unknown', 'unknown completed',
        'unknown in_progress', 'unknown failed_retryable', 'failed_retryable in_progress',
        'failed_retryable completed', 'failed_retryable unknown', 'failed_retryable expired', 'completed expired'))
    EXECUTE FUNCTION idem.refuse('this change of state is not listed');
CREATE TRIGGER stored_answer_is_immutable
    AFTER UPDATE OF response_status, response_headers, response_body, response_schema_version, completed_at
    ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.state = 'completed' AND NEW.state = 'completed' AND
          (OLD.response_status, OLD.response_headers, OLD.response_body, OLD.response_schema_version,
           OLD.completed_at)
          IS DISTINCT FROM
          (NEW.response_status, NEW.response_headers, NEW.response_body, NEW.response_schema_version,
           NEW.completed_at))
    EXECUTE FUNCTION idem.refuse('a stored answer is immutable');
CREATE TRIGGER key_keeps_its_identity AFTER UPDATE OF tenant_id, operation, idempotency_key, fingerprint, intent_id
    ON idem.idempotency_keys FOR EACH ROW
    WHEN ((OLD.tenant_id, OLD.operation, OLD.idempotency_key, OLD.fingerprint, OLD.intent_id)
          IS DISTINCT FROM (NEW.tenant_id, NEW.operation, NEW.idempotency_key, NEW.fingerprint, NEW.intent_id))
    EXECUTE FUNCTION idem.refuse('a key keeps its scope, its fingerprint and its intent');
CREATE TRIGGER key_keeps_its_terms AFTER UPDATE OF refuse_after_expiry, created_at, expires_at
    ON idem.idempotency_keys FOR EACH ROW
    WHEN ((OLD.refuse_after_expiry, OLD.created_at) IS DISTINCT FROM (NEW.refuse_after_expiry, NEW.created_at)
          OR NEW.expires_at < OLD.expires_at)
    EXECUTE FUNCTION idem.refuse_unless_owner('a key keeps the time of its making and its rule of expiry; expires_at only '
                                              'grows');
CREATE TRIGGER key_expires_in_its_time AFTER UPDATE OF state ON idem.idempotency_keys FOR EACH ROW
    WHEN (NEW.state = 'expired' AND OLD.state <> 'expired' AND OLD.expires_at > statement_timestamp())
    EXECUTE FUNCTION idem.refuse_unless_owner('a key expires when expires_at has passed');

-- A flow that is partly done goes on for as long as it takes, and its key with it.
CREATE FUNCTION idem.refuse_expiry_of_open_flow() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM idem.intents i
                WHERE i.id = NEW.intent_id AND i.recovery_point > 0 AND i.state <> 'completed') THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('idem refuses to expire the key of intent %s', NEW.intent_id),
            DETAIL  = 'One of its steps is done and another is open: its key expires after the last one.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER key_of_open_flow_stays AFTER UPDATE OF state ON idem.idempotency_keys FOR EACH ROW
    WHEN (NEW.state = 'expired' AND OLD.state <> 'expired')
    EXECUTE FUNCTION idem.refuse_expiry_of_open_flow();
CREATE TRIGGER only_expired_keys_are_deleted BEFORE DELETE ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.state <> 'expired')
    EXECUTE FUNCTION idem.refuse('only an expired key is deleted');
CREATE TRIGGER expired_key_goes_in_its_time BEFORE DELETE ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.refuse_after_expiry OR OLD.expires_at > statement_timestamp())
    EXECUTE FUNCTION idem.refuse_unless_owner('an expired key goes when expires_at has passed, and one that is refused '
                                              'for ever stays');

-- TRUNCATE fires no trigger of a row.
CREATE TRIGGER keys_are_never_truncated BEFORE TRUNCATE ON idem.idempotency_keys
    EXECUTE FUNCTION idem.refuse('only an expired key is deleted');
CREATE TRIGGER key_is_reserved_once AFTER UPDATE OF reserved, state ON idem.idempotency_keys FOR EACH ROW
    WHEN (NEW.reserved AND (NOT OLD.reserved OR NEW.state <> 'in_progress'))
    EXECUTE FUNCTION idem.refuse('a key is reserved by its INSERT alone, and is in_progress until it is submitted');

-- What is looked at of a new key when its transaction commits: that it is in progress, or was since, that it is not
-- reserved any more, and that the commit is durable. One function without a condition of the trigger: PostgreSQL reads
-- each condition again in each statement. It runs with the rights of whoever commits: a producer of SQL alone may read no
-- table of idem.
CREATE FUNCTION idem.end_new_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'idem.idempotency_keys'::regclass THEN
        RAISE insufficient_privilege USING MESSAGE = 'idem.end_new_key belongs to idem''s keys alone';
    ELSIF NEW.state <> 'in_progress' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = 'idem refuses this INSERT of idempotency_keys',
            DETAIL  = 'a key begins in_progress',
            HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
    ELSIF NEW.reserved AND EXISTS (SELECT FROM idem.idempotency_keys k
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
    ELSIF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN NULL;
END $$;

-- Deferred triggers of a row fire in the order of their names: this one is to speak before the foreign key's own
-- ("RI_..."), whose message would be a riddle.
CREATE CONSTRAINT TRIGGER "A_new_key_is_whole" AFTER INSERT ON idem.idempotency_keys
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION idem.end_new_key();

-- How an intent begins. What has its end has no row, and gets none.
CREATE FUNCTION idem.begin_intent() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.state = 'in_progress' THEN
        RETURN NEW;
    ELSIF NEW.state <> 'completed' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = 'idem refuses this INSERT of intents',
            DETAIL  = 'an intent begins in progress',
            HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
    ELSIF EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = NEW.id) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'intents',
            MESSAGE = format('idem refuses this INSERT of intents: %s begins completed', NEW.id),
            DETAIL  = 'An intent that begins completed has no row of the outbox: nothing is called for it.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER intent_begins_as_listed BEFORE INSERT ON idem.intents FOR EACH ROW
    EXECUTE FUNCTION idem.begin_intent();
CREATE TRIGGER intent_transition_is_listed AFTER UPDATE OF state ON idem.intents FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND OLD.state || ' ' || NEW.state NOT IN (
        'in_progress completed', 'in_progress failed_retryable', 'in_progress unknown', 'unknown completed',
        'unknown in_progress', 'unknown failed_retryable', 'failed_retryable in_progress',
        'failed_retryable completed', 'failed_retryable unknown'))
    EXECUTE FUNCTION idem.refuse('this change of state is not listed');

-- `params` are not compared at each move of an intent, because they may be long: no role has the right to write them.
CREATE TRIGGER intent_keeps_its_identity
    AFTER UPDATE OF id, tenant_id, operation, idempotency_key, provider, account, asked_by, created_at
    ON idem.intents FOR EACH ROW
    WHEN ((OLD.id, OLD.tenant_id, OLD.operation, OLD.idempotency_key, OLD.provider, OLD.account, OLD.asked_by, OLD.created_at)
          IS DISTINCT FROM
          (NEW.id, NEW.tenant_id, NEW.operation, NEW.idempotency_key, NEW.provider, NEW.account, NEW.asked_by, NEW.created_at))
    EXECUTE FUNCTION idem.refuse_unless_owner('an intent keeps its scope, its provider, its account and who asked');

-- As of its row: a worker decides about what is undecided, and once.
CREATE TRIGGER intent_is_approved_by_its_function AFTER UPDATE OF approval ON idem.intents FOR EACH ROW
    WHEN (OLD.approval IS DISTINCT FROM NEW.approval
          AND (coalesce(OLD.approval, '') <> 'undecided' OR coalesce(NEW.approval, '') = 'given'))
    EXECUTE FUNCTION idem.refuse_unless_owner('only idem.approve approves a call: an operator uses idem intents approve');

-- What the provider says later of the object is in object_end alone.
CREATE TRIGGER completed_intent_stays
    AFTER UPDATE OF outcome, settled_at, provider_reference, result, interim, label, requested_at, recovery_point, version,
                    sent_as ON idem.intents FOR EACH ROW
    WHEN (OLD.state = 'completed' AND
          (OLD.outcome, OLD.settled_at, OLD.provider_reference, OLD.result, OLD.interim, OLD.label, OLD.requested_at,
           OLD.recovery_point, OLD.version, OLD.sent_as)
          IS DISTINCT FROM
          (NEW.outcome, NEW.settled_at, NEW.provider_reference, NEW.result, NEW.interim, NEW.label, NEW.requested_at,
           NEW.recovery_point, NEW.version, NEW.sent_as))
    EXECUTE FUNCTION idem.refuse_unless_owner('what a completed intent came to stays');
CREATE TRIGGER recovery_point_only_grows AFTER UPDATE OF recovery_point ON idem.intents FOR EACH ROW
    WHEN (NEW.recovery_point < OLD.recovery_point)
    EXECUTE FUNCTION idem.refuse('the recovery point of a flow only grows');
CREATE TRIGGER intent_ends_now AFTER UPDATE OF settled_at ON idem.intents FOR EACH ROW
    WHEN (OLD.settled_at IS NULL AND NEW.settled_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_unless_owner('the end of an intent has the time of the statement that writes it');
CREATE TRIGGER intents_are_kept BEFORE DELETE ON idem.intents FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('intents are the ledger');
CREATE TRIGGER intents_are_never_truncated BEFORE TRUNCATE ON idem.intents
    EXECUTE FUNCTION idem.refuse('intents are the ledger');
