-- What the database refuses of an outbox row and of a frozen request.
-- Here and for keys and intents a trigger checks an UPDATE AFTER it. A row that a trigger checks before is fetched and
-- locked once more for each UPDATE. `UPDATE OF` names what a statement must set for the trigger to be asked at all.

-- How a row begins, whose it is, that its intent is open (no second call is queued for what has its end), and that its
-- accept is not paused. One function, because PostgreSQL parses the WHEN of a trigger in each statement. The key is read
-- first: accept writes key, row and intent in one statement, in this order.
CREATE FUNCTION idem.begin_row() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    state  text;
    pause  boolean;
    wrong  text := CASE
        WHEN NEW.status NOT IN ('approval', 'pending', 'waiting', 'unfrozen', 'claimed')
             AND NOT (NEW.status = 'held' AND NEW.step > 1)
          OR NEW.status = 'unfrozen' AND NEW.ordering_key IS NOT NULL AND NEW.ordering_number IS NULL
          OR (NEW.status = 'claimed') <> NEW.inline
            THEN 'an outbox row begins pending, waiting, unfrozen or approval, claimed if it is inline, held if it is a '
                 'later step'
        WHEN NEW.generation <> 1 OR NEW.attempt <> CASE WHEN NEW.inline THEN 1 ELSE 0 END
          OR NOT NEW.inline AND NEW.first_sent_at IS NOT NULL OR NEW.key_burned OR NEW.cancel_sent
          OR NEW.approval = 'given'
            THEN 'an outbox row begins with nothing sent'
        WHEN NEW.provider = 'local' AND NOT NEW.inline
             AND (NEW.step_name IS NULL OR NEW.status NOT IN ('approval', 'held', 'unfrozen', 'waiting'))
            THEN 'an operation without a provider is completed by its caller: no worker may find it' END;
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = 'idem refuses this INSERT of outbox',
            DETAIL  = wrong,
            HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
    END IF;
    SELECT k.tenant_id, k.state, NEW.step = 1 AND EXISTS (
               SELECT FROM idem.lanes l WHERE l.provider = NEW.provider AND l.account IN (NEW.account, '')
                  AND (l.accept_paused OR l.paused AND NEW.inline))
      INTO NEW.tenant_id, state, pause
      FROM idem.idempotency_keys k WHERE k.intent_id = NEW.intent_id LIMIT 1;
    IF pause THEN
        PERFORM idem.refuse_paused(NEW.provider, NEW.account, NEW.inline, true);
    ELSIF NOT FOUND THEN
        SELECT i.tenant_id, i.state INTO NEW.tenant_id, state FROM idem.intents i WHERE i.id = NEW.intent_id;
        IF NEW.step = 1 THEN
            PERFORM idem.refuse_paused(NEW.provider, NEW.account, NEW.inline, true);
        END IF;
    END IF;
    -- The key of a flow may have its answer before the last step: what counts is its intent.
    IF NEW.step > 1 THEN
        SELECT CASE WHEN i.state <> 'completed' THEN 'in_progress' ELSE i.state END INTO state
          FROM idem.intents i WHERE i.id = NEW.intent_id;
    END IF;
    -- Where there is no intent, the foreign key refuses the row.
    NEW.tenant_id := coalesce(NEW.tenant_id, '');
    IF state <> 'in_progress' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'outbox',
            MESSAGE = format('idem refuses this INSERT of outbox: intent %s is %s', NEW.intent_id, state),
            DETAIL  = 'A call is queued for an intent that is in progress alone.',
            HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER outbox_row_begins_as_listed BEFORE INSERT ON idem.outbox FOR EACH ROW
    EXECUTE FUNCTION idem.begin_row();

-- A row at rest that was never rendered goes back to be rendered; an inline row is taken up again by its caller alone.
-- A follower waits before it is rendered: what may be rendered is next.
CREATE TRIGGER outbox_transition_is_listed AFTER UPDATE OF status ON idem.outbox FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND (OLD.status || ' ' || NEW.status NOT IN (
        -- In the order of how often: the first that is found ends the search.
        'pending claimed', 'claimed pending', 'claimed held', 'claimed unknown', 'claimed awaiting',
        'unfrozen pending', 'unfrozen approval', 'unfrozen held', 'unfrozen unknown', 'approval pending',
        'approval waiting', 'approval unfrozen', 'approval held', 'approval awaiting', 'approval unknown',
        'waiting pending', 'waiting unfrozen', 'waiting held', 'waiting awaiting', 'waiting unknown', 'pending held',
        'pending awaiting', 'pending unknown', 'unknown awaiting', 'unknown held', 'held approval', 'held pending',
        'held unfrozen', 'held waiting', 'held claimed', 'held awaiting', 'held unknown')
        OR OLD.status = 'held' AND NEW.status = 'claimed' AND NOT NEW.inline))
    EXECUTE FUNCTION idem.refuse('this change of status is not listed');
-- idem.approve gives an approval, and nothing else does; a worker decides about what is undecided, and once.
CREATE TRIGGER approval_is_given_by_its_function AFTER UPDATE OF approval ON idem.outbox FOR EACH ROW
    WHEN (OLD.approval IS DISTINCT FROM NEW.approval
          AND (coalesce(OLD.approval, '') <> 'undecided' OR coalesce(NEW.approval, '') = 'given'))
    EXECUTE FUNCTION idem.refuse_unless_owner('only idem.approve approves a call: an operator uses idem intents approve');

-- What lost commits may have sent is unknown, and a replay would be its first send: only a cancel is made.
CREATE TRIGGER unapproved_call_is_not_made AFTER UPDATE OF attempt ON idem.outbox FOR EACH ROW
    WHEN (NEW.attempt > OLD.attempt AND NEW.approval <> 'given' AND NOT NEW.cancel_sent)
    EXECUTE FUNCTION idem.refuse('a call that is not approved is not made');
CREATE TRIGGER attempt_and_generation_only_grow AFTER UPDATE OF attempt, generation ON idem.outbox FOR EACH ROW
    WHEN (NEW.attempt < OLD.attempt OR NEW.generation < OLD.generation)
    EXECUTE FUNCTION idem.refuse('attempt and generation only grow');
CREATE TRIGGER outbox_row_keeps_its_identity
    AFTER UPDATE OF id, intent_id, step, provider, account, origin, provider_key ON idem.outbox FOR EACH ROW
    WHEN ((OLD.id, OLD.intent_id, OLD.step, OLD.provider, OLD.account, OLD.origin)
          IS DISTINCT FROM (NEW.id, NEW.intent_id, NEW.step, NEW.provider, NEW.account, NEW.origin)
          OR (OLD.generation = NEW.generation AND OLD.provider_key <> NEW.provider_key))
    EXECUTE FUNCTION idem.refuse('row, account and origin stay, and the provider key of a generation');

-- What is sent was decided once: for whom, by what operation, in which way, and for how long the provider remembers it.
CREATE TRIGGER outbox_row_keeps_its_terms
    AFTER UPDATE OF operation, inline, marks_start, replay_window, format_version, step_name, tenant_id, ordering_group,
                    ordering_key, ordering_number, refusal_holds, imported_as, imported_sent_at ON idem.outbox FOR EACH ROW
    WHEN ((OLD.operation, OLD.inline, OLD.marks_start, OLD.replay_window, OLD.format_version)
          IS DISTINCT FROM (NEW.operation, NEW.inline, NEW.marks_start, NEW.replay_window, NEW.format_version)
          OR OLD.step_name IS DISTINCT FROM NEW.step_name
          OR OLD.tenant_id <> NEW.tenant_id
          OR (OLD.ordering_group, OLD.ordering_key, OLD.ordering_number, OLD.refusal_holds)
             IS DISTINCT FROM (NEW.ordering_group, NEW.ordering_key, NEW.ordering_number, NEW.refusal_holds)
          OR OLD.imported_as IS NOT NULL AND OLD.imported_as IS DISTINCT FROM NEW.imported_as
          OR OLD.imported_sent_at IS NOT NULL AND OLD.imported_sent_at IS DISTINCT FROM NEW.imported_sent_at)
    EXECUTE FUNCTION idem.refuse_unless_owner('an outbox row keeps its tenant, its operation, its order and the terms of its call');
CREATE TRIGGER quiet_time_is_never_lowered AFTER UPDATE OF quiet_after ON idem.outbox FOR EACH ROW
    WHEN (OLD.quiet_after IS NOT NULL AND (NEW.quiet_after IS NULL OR NEW.quiet_after < OLD.quiet_after))
    EXECUTE FUNCTION idem.refuse('quiet_after is only raised');

-- The next generation is for a row that is rendered anew because its key is burned, when nothing sent under the old key
-- can act any more; and its key is the derived one (outbox/settle/key_rotation.py).
CREATE FUNCTION idem.refuse_other_generation() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'MEMBER')
       OR NEW.generation = OLD.generation + 1 AND NEW.status = OLD.status
          AND OLD.status = 'unfrozen' AND OLD.key_burned
          AND coalesce(OLD.quiet_after <= statement_timestamp(), true)
          AND NEW.provider_key = (
              SELECT idem.provider_key(s.hmac_inner, s.hmac_outer, n.tenant_id, n.operation, n.idempotency_key, NEW.step, NEW.generation)
                FROM idem.intents n CROSS JOIN idem.installation s WHERE n.id = NEW.intent_id)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this UPDATE of outbox row %s: it gets no provider key of generation %s', NEW.id,
                         NEW.generation),
        DETAIL  = 'The next provider key is the derived one, for a row that is rendered anew because its key is burned, '
                  'after quiet_after.',
        HINT    = 'An operator uses: idem dlq redrive --new-provider-key.';
END $$;
CREATE TRIGGER next_generation_is_in_order AFTER UPDATE OF generation ON idem.outbox FOR EACH ROW
    WHEN (OLD.generation <> NEW.generation)
    EXECUTE FUNCTION idem.refuse_other_generation();

-- Once for all rows of a statement: the statement that deletes a row is the one that ends its step.
CREATE FUNCTION idem.refuse_early_delete() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    early  uuid;
BEGIN
    SELECT d.id INTO early FROM gone d
     WHERE (SELECT i.state FROM idem.intents i WHERE i.id = d.intent_id) IS DISTINCT FROM 'completed'
       AND (SELECT o.step FROM idem.outbox o WHERE o.intent_id = d.intent_id) > d.step IS NOT TRUE
       -- Or its intent rests for good: no client can take it up again, because its key has expired.
       AND NOT (d.status = 'held' AND d.redrive_at IS NULL AND d.doubted_since IS NULL
                AND (SELECT i.state FROM idem.intents i WHERE i.id = d.intent_id) = 'failed_retryable'
                AND (SELECT bool_or(k.state <> 'expired') FROM idem.idempotency_keys k
                      WHERE k.intent_id = d.intent_id) IS NOT TRUE)
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('idem refuses this DELETE of outbox row %s', early),
            DETAIL  = 'An outbox row leaves only in the statement that completes or cancels its step, or when it rests and '
                      'its key has expired.';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_row_leaves_when_done AFTER DELETE ON idem.outbox
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION idem.refuse_early_delete();
CREATE TRIGGER outbox_is_never_truncated BEFORE TRUNCATE ON idem.outbox
    EXECUTE FUNCTION idem.refuse('an outbox row leaves only when its step is done');
CREATE TRIGGER requests_are_written_once BEFORE UPDATE ON idem.requests FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('a frozen request is written once');

-- A role writes the request of a row that is rendered now. The primary key keeps what is frozen already.
CREATE FUNCTION idem.refuse_other_request() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The owner, and its functions: no other role can grant its rights, unless the owner has said so. It is asked without a
    -- query of the catalogue, because each accept asks.
    IF has_table_privilege(TG_RELID, 'TRIGGER WITH GRANT OPTION')
       OR EXISTS (
           SELECT FROM idem.outbox o
            WHERE o.id = NEW.outbox_id
              AND (o.intent_id, o.step, o.provider, o.account) = (NEW.intent_id, NEW.step, NEW.provider, NEW.account)
              AND (o.generation, o.provider_key) = (NEW.generation, NEW.provider_key)
              AND o.status IN ('unfrozen', 'approval', 'pending'))
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this INSERT of requests: generation %s of row %s', NEW.generation, NEW.outbox_id),
        DETAIL  = 'A request is frozen for a row that is rendered now, under its provider key.',
        HINT    = 'An operator uses: idem dlq redrive --new-provider-key.';
END $$;
CREATE TRIGGER request_is_in_order BEFORE INSERT ON idem.requests FOR EACH ROW
    EXECUTE FUNCTION idem.refuse_other_request();

CREATE FUNCTION idem.keep_request_of_open_row() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
    EXECUTE FUNCTION idem.keep_request_of_open_row();
CREATE TRIGGER requests_are_never_truncated BEFORE TRUNCATE ON idem.requests
    EXECUTE FUNCTION idem.refuse('a frozen request stays as long as its outbox row');
