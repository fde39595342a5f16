-- What the flows of idem never change, no role of a program changes. The owner of a table may switch its triggers off, so
-- the owner is not stopped here: a repair by hand is the owner's. The functions that run as the owner are not stopped either.

CREATE FUNCTION idem.refuse_role() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- `params` are not compared at each move of an intent, because they may be long: no role has the right to write them.
CREATE TRIGGER intent_keeps_its_identity BEFORE UPDATE ON idem.intents FOR EACH ROW
    WHEN ((OLD.id, OLD.tenant_id, OLD.operation, OLD.idempotency_key, OLD.provider, OLD.account, OLD.created_at)
          IS DISTINCT FROM
          (NEW.id, NEW.tenant_id, NEW.operation, NEW.idempotency_key, NEW.provider, NEW.account, NEW.created_at))
    EXECUTE FUNCTION idem.refuse_role('an intent keeps its scope, its provider and its account');
-- What the provider tells later of the object is in object_end alone.
CREATE TRIGGER completed_intent_stays BEFORE UPDATE ON idem.intents FOR EACH ROW
    WHEN (OLD.state = 'completed' AND
          (OLD.outcome, OLD.settled_at, OLD.provider_reference, OLD.result, OLD.interim, OLD.label, OLD.wanted_at,
           OLD.step, OLD.version, OLD.sent_as)
          IS DISTINCT FROM
          (NEW.outcome, NEW.settled_at, NEW.provider_reference, NEW.result, NEW.interim, NEW.label, NEW.wanted_at,
           NEW.step, NEW.version, NEW.sent_as))
    EXECUTE FUNCTION idem.refuse_role('what a completed intent came to stays');
CREATE TRIGGER intent_ends_now BEFORE UPDATE ON idem.intents FOR EACH ROW
    WHEN (OLD.settled_at IS NULL AND NEW.settled_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_role('the end of an intent has the time of the statement that writes it');

CREATE TRIGGER key_keeps_its_terms BEFORE UPDATE ON idem.idempotency_keys FOR EACH ROW
    WHEN ((OLD.refuse_after_expiry, OLD.created_at) IS DISTINCT FROM (NEW.refuse_after_expiry, NEW.created_at)
          OR NEW.expires_at < OLD.expires_at)
    EXECUTE FUNCTION idem.refuse_role('a key keeps the time of its making and its rule of expiry; expires_at only grows');
CREATE TRIGGER key_expires_in_its_time BEFORE UPDATE ON idem.idempotency_keys FOR EACH ROW
    WHEN (NEW.state = 'expired' AND OLD.state <> 'expired' AND OLD.expires_at > statement_timestamp())
    EXECUTE FUNCTION idem.refuse_role('a key expires when expires_at has passed');
CREATE TRIGGER expired_key_goes_in_its_time BEFORE DELETE ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.refuse_after_expiry OR OLD.expires_at > statement_timestamp())
    EXECUTE FUNCTION idem.refuse_role('an expired key goes when expires_at has passed, and one that is refused for ever '
                                      'stays');

CREATE TRIGGER dead_letter_is_resolved_now BEFORE UPDATE ON idem.dead_letters FOR EACH ROW
    WHEN (OLD.resolved_at IS NULL AND NEW.resolved_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_role('resolved_at is the time of the statement that resolves');
CREATE TRIGGER resolved_dead_letter_stays BEFORE UPDATE ON idem.dead_letters FOR EACH ROW
    WHEN (OLD.resolved_at IS NOT NULL AND
          (OLD.resolved_at, OLD.resolution, OLD.resolved_by, OLD.note)
          IS DISTINCT FROM (NEW.resolved_at, NEW.resolution, NEW.resolved_by, NEW.note))
    EXECUTE FUNCTION idem.refuse_role('what resolved a dead letter stays');
CREATE TRIGGER dead_letter_keeps_its_subject BEFORE UPDATE ON idem.dead_letters FOR EACH ROW
    WHEN ((OLD.id, OLD.intent_id, OLD.webhook_event_id, OLD.subject, OLD.reason, OLD.created_at)
          IS DISTINCT FROM (NEW.id, NEW.intent_id, NEW.webhook_event_id, NEW.subject, NEW.reason, NEW.created_at))
    EXECUTE FUNCTION idem.refuse_role('a dead letter keeps what it is about, its reason and its time');

-- Retention counts from these: history is written with the time of its statement.
CREATE TRIGGER evidence_is_of_now BEFORE INSERT ON idem.evidence FOR EACH ROW
    WHEN (NEW.at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_role('evidence has the time of the statement that writes it');
CREATE TRIGGER event_is_of_now BEFORE INSERT ON idem.events FOR EACH ROW
    WHEN (NEW.created_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_role('an event has the time of the statement that writes it');
CREATE TRIGGER lane_change_is_of_now BEFORE INSERT ON idem.lane_changes FOR EACH ROW
    WHEN (NEW.changed_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_role('a change of a lane has the time of the statement that writes it');

-- What is sent was decided once: for whom, by what operation, in which way, and for how long the provider remembers it.
CREATE TRIGGER outbox_row_keeps_its_terms BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN ((OLD.operation, OLD.inline, OLD.marks_start, OLD.replay_window, OLD.format_version)
          IS DISTINCT FROM (NEW.operation, NEW.inline, NEW.marks_start, NEW.replay_window, NEW.format_version)
          OR OLD.tenant_id <> '' AND OLD.tenant_id <> NEW.tenant_id
          OR OLD.imported_as IS NOT NULL AND OLD.imported_as IS DISTINCT FROM NEW.imported_as
          OR OLD.imported_sent_at IS NOT NULL AND OLD.imported_sent_at IS DISTINCT FROM NEW.imported_sent_at)
    EXECUTE FUNCTION idem.refuse_role('an outbox row keeps its tenant, its operation and the terms of its call');

-- The next generation is for a row at rest, or for one that is rendered anew because its key is burned, when nothing sent
-- under the old key can act any more; and its key is the derived one (outbox/generations.py).
CREATE FUNCTION idem.refuse_other_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'MEMBER')
       OR NEW.generation = OLD.generation + 1 AND NEW.status = OLD.status
          AND (OLD.status = 'held' OR OLD.status = 'unfrozen' AND OLD.key_burned)
          AND coalesce(OLD.quiet_after <= statement_timestamp(), true)
          AND NEW.provider_key = (
              SELECT idem.provider_key(s.secret, n.tenant_id, n.operation, n.idempotency_key, NEW.step, NEW.generation)
                FROM idem.intents n CROSS JOIN idem.installation s WHERE n.id = NEW.intent_id)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this UPDATE of outbox row %s: it gets no provider key of generation %s', NEW.id,
                         NEW.generation),
        DETAIL  = 'The next provider key is the derived one, for a row at rest or a row whose key is burned, after '
                  'quiet_after.',
        HINT    = 'An operator uses: idem dlq redrive --new-provider-key.';
END $$;
CREATE TRIGGER next_generation_is_in_order BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN (OLD.generation <> NEW.generation)
    EXECUTE FUNCTION idem.refuse_other_generation();

-- A role writes the request of a row that is rendered now, or the next one of a row at rest. The primary key keeps what
-- is frozen already.
CREATE FUNCTION idem.refuse_other_request() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'MEMBER')
       OR EXISTS (
           SELECT FROM idem.outbox o
            WHERE o.id = NEW.outbox_id
              AND (o.intent_id, o.step, o.provider, o.account) = (NEW.intent_id, NEW.step, NEW.provider, NEW.account)
              AND CASE
                  WHEN NEW.generation = o.generation
                      THEN o.status IN ('unfrozen', 'pending') AND NEW.provider_key = o.provider_key
                  WHEN NEW.generation = o.generation + 1 AND o.status = 'held'
                      THEN NEW.provider_key = (
                          SELECT idem.provider_key(s.secret, n.tenant_id, n.operation, n.idempotency_key, o.step,
                                                   NEW.generation)
                            FROM idem.intents n CROSS JOIN idem.installation s WHERE n.id = o.intent_id)
                  END)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = format('idem refuses this INSERT of requests: generation %s of row %s', NEW.generation, NEW.outbox_id),
        DETAIL  = 'A request is frozen for a row that is rendered now, or under the next provider key of a row at rest.',
        HINT    = 'An operator uses: idem dlq redrive --new-provider-key.';
END $$;
CREATE TRIGGER request_is_in_order BEFORE INSERT ON idem.requests FOR EACH ROW
    EXECUTE FUNCTION idem.refuse_other_request();
