-- What the database refuses of evidence, events and dead letters.

-- Evidence and events: no UPDATE at all; a DELETE only of a row past its retention whose intent is final. The check
-- is made of the row, never of a session setting that any role could set.
CREATE FUNCTION idem.keep_open_history() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- Evidence says who wrote it: the role that logged in, which no session chooses. Retention counts from `at`: history is
-- written with the time of its statement, unless the owner writes it. One trigger and one condition: PostgreSQL reads
-- each again in each statement.
CREATE FUNCTION idem.refuse_evidence() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.database_role = session_user
       AND pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'MEMBER') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation',
        MESSAGE = 'idem refuses this INSERT of evidence',
        DETAIL  = CASE WHEN NEW.database_role <> session_user THEN 'evidence names the database role that wrote it'
                       ELSE 'evidence has the time of the statement that writes it' END,
        HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
END $$;
CREATE TRIGGER evidence_is_of_its_writer_and_of_now BEFORE INSERT ON idem.evidence FOR EACH ROW
    WHEN (NEW.database_role <> session_user OR NEW.at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_evidence();

-- Retention of an event counts from its time.
CREATE TRIGGER evidence_is_never_changed BEFORE UPDATE ON idem.evidence FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('evidence is append-only');
CREATE TRIGGER evidence_is_kept BEFORE DELETE ON idem.evidence FOR EACH ROW
    EXECUTE FUNCTION idem.keep_open_history('intent_id', 'at');
CREATE TRIGGER evidence_is_never_truncated BEFORE TRUNCATE ON idem.evidence
    EXECUTE FUNCTION idem.refuse('evidence is append-only');
CREATE TRIGGER event_is_of_now BEFORE INSERT ON idem.events FOR EACH ROW
    WHEN (NEW.created_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_unless_owner('an event has the time of the statement that writes it');
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON idem.events FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('events are append-only');
CREATE TRIGGER events_are_kept BEFORE DELETE ON idem.events FOR EACH ROW
    EXECUTE FUNCTION idem.keep_open_history('aggregateid', 'created_at');
CREATE TRIGGER events_are_never_truncated BEFORE TRUNCATE ON idem.events
    EXECUTE FUNCTION idem.refuse('events are append-only');

-- What people did, kept as long as evidence. An entry that is open has no time of its end, so it never goes.
CREATE FUNCTION idem.keep_until_retention() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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
CREATE TRIGGER dead_letter_is_resolved_now BEFORE UPDATE ON idem.dead_letters FOR EACH ROW
    WHEN (OLD.resolved_at IS NULL AND NEW.resolved_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_unless_owner('resolved_at is the time of the statement that resolves');
CREATE TRIGGER resolved_dead_letter_stays BEFORE UPDATE ON idem.dead_letters FOR EACH ROW
    WHEN (OLD.resolved_at IS NOT NULL AND
          (OLD.resolved_at, OLD.resolution, OLD.resolved_by, OLD.note)
          IS DISTINCT FROM (NEW.resolved_at, NEW.resolution, NEW.resolved_by, NEW.note))
    EXECUTE FUNCTION idem.refuse_unless_owner('what resolved a dead letter stays');
CREATE TRIGGER dead_letter_keeps_its_subject BEFORE UPDATE ON idem.dead_letters FOR EACH ROW
    WHEN ((OLD.id, OLD.intent_id, OLD.webhook_event_id, OLD.subject, OLD.reason, OLD.created_at)
          IS DISTINCT FROM (NEW.id, NEW.intent_id, NEW.webhook_event_id, NEW.subject, NEW.reason, NEW.created_at))
    EXECUTE FUNCTION idem.refuse_unless_owner('a dead letter keeps what it is about, its reason and its time');
CREATE TRIGGER dead_letters_are_kept BEFORE DELETE ON idem.dead_letters FOR EACH ROW
    EXECUTE FUNCTION idem.keep_until_retention('resolved_at');
