-- What the provider has done with a row's key. `key_burned`: whatever is sent under it gets the same failure, or it was
-- cancelled: no send under it any more, the next one is made under a new key. `cancel_sent`: a cancel may have left for
-- it, so that only its answer says what is there. `server_error`: an attempt ended with a 5xx of the provider, which may
-- still carry it out.
ALTER TABLE idem.outbox
    ADD COLUMN key_burned    boolean NOT NULL DEFAULT false,
    ADD COLUMN cancel_sent   boolean NOT NULL DEFAULT false,
    ADD COLUMN server_error  boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT burned_key_is_not_queued
        CHECK (NOT key_burned OR status IN ('unfrozen', 'unknown', 'awaiting', 'held')),
    ADD CONSTRAINT cancelled_key_is_burned CHECK (key_burned OR NOT cancel_sent);

-- A reconciler of an older version knows nothing of burned keys. It counts its replay in the statement that takes the
-- row, by a token of its own; of this version only a cancel is counted under a burned key, and that within a take, whose
-- token stays. So a new token together with a new attempt is a send under a key that is given up, and does not begin.
CREATE FUNCTION idem.refuse_older_daemon() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'outbox',
        MESSAGE = format('an older daemon is running, %s: it was about to send row %s again under a key that is given '
                         'up; nothing was sent', NEW.claimed_by, NEW.id),
        HINT    = 'Stop it, and start the version that this schema is of.';
END $$;
CREATE TRIGGER burned_key_is_not_replayed BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN (OLD.key_burned AND NEW.key_burned AND NEW.status = 'unknown' AND NEW.attempt > OLD.attempt
          AND NEW.claim_token IS DISTINCT FROM OLD.claim_token)
    EXECUTE FUNCTION idem.refuse_older_daemon();

-- Whether a moment of the past lies ahead of the database's clock: the clock was ahead when it was written, or is behind
-- now, and its true time is not known (docs/decisions/0041). A minute is less than any margin of a contract should be, and
-- more than two statements of one clock can be apart.
CREATE FUNCTION idem.is_ahead(moment timestamptz) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN moment > statement_timestamp() + interval '1 minute';

-- The earlier of two moments of sending; the one that lies ahead where one does, because the other cannot stand for it.
CREATE FUNCTION idem.earlier(sent timestamptz, doubted timestamptz) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN idem.is_ahead(greatest(sent, doubted)) THEN greatest(sent, doubted) ELSE least(sent, doubted) END;

-- A moment as POSIX seconds; NULL: there is none, or it is not known.
CREATE FUNCTION idem.known_moment(moment timestamptz) RETURNS float8 LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN NOT idem.is_ahead(moment) THEN extract(epoch FROM moment)::float8 END;

-- Seconds since the earliest moment at which something that is not proven to be without effect may have been sent under
-- a row's key: its own first send, or what lost commits may have sent (`doubted`). NULL: nothing was sent. Infinity: a
-- moment that is not known. The planner puts the body of both in the place of the call, so that no plan is another one
-- for it.
CREATE FUNCTION idem.memory_age(sent timestamptz, doubted timestamptz) RETURNS float8 LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN idem.is_ahead(greatest(sent, doubted)) THEN float8 'Infinity'
                ELSE extract(epoch FROM statement_timestamp() - least(sent, doubted))::float8 END;

-- Seconds for which the provider is still sure to remember that: the smaller of what it promised when the row was
-- accepted and of what the contract states now, from that moment. `stated` NULL: it is not known here. 0 or less: no more.
-- `idem.outbox.recovery.window` has the same rule for what Python must compute.
CREATE FUNCTION idem.memory_left(sent timestamptz, doubted timestamptz, promised integer, stated float8) RETURNS float8
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN least(promised::float8, stated) - idem.memory_age(sent, doubted);

-- The client's own retry of a key at rest: as before, but what is at rest under a burned provider key goes back to be
-- rendered under a new one, and not before anything sent under the old one can act no more.
CREATE OR REPLACE FUNCTION idem.take_up_again(k idem.idempotency_keys, p_patience interval) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_id  uuid;
    next    text;
BEGIN
    SELECT o.id INTO row_id FROM idem.outbox o
     WHERE o.intent_id = k.intent_id AND o.status = 'held' AND NOT o.inline
       AND NOT idem.needs_operator(k.intent_id)
       AND NOT EXISTS (SELECT FROM idem.proofs p WHERE p.outbox_id = o.id)
       AND NOT EXISTS (SELECT FROM idem.doubts d WHERE d.outbox_id = o.id)
       -- Lost commits may have sent it, and the provider may have forgotten that: the sweeper makes it unknown.
       AND (o.doubted_since IS NULL OR idem.memory_left(NULL, o.doubted_since, o.replay_window, NULL) > 0)
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
       SET status = CASE WHEN NOT o.key_burned
                          AND EXISTS (SELECT r.outbox_id FROM idem.requests r WHERE r.outbox_id = o.id
                                         AND r.generation = o.generation)
                         THEN 'pending' ELSE 'unfrozen' END,
           status_since = statement_timestamp(), redrive_at = NULL,
           available_at = CASE WHEN o.key_burned THEN greatest(o.quiet_after, statement_timestamp())
                               ELSE statement_timestamp() END,
           start_before = statement_timestamp() + p_patience
     WHERE o.id = row_id RETURNING o.status INTO next;
    UPDATE idem.intents SET state = 'in_progress', version = version + 1, wanted_at = statement_timestamp()
     WHERE id = k.intent_id;
    UPDATE idem.dead_letters SET resolved_at = statement_timestamp(), resolution = 'client_retry',
           resolved_by = session_user, note = 'the client sent its request again'
     WHERE intent_id = k.intent_id AND resolved_at IS NULL AND reason IN ('too_late', 'unrenderable');
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind,
                               from_state, to_state, from_status, to_status)
    SELECT o.intent_id, o.id, o.step, o.attempt, 'accept', 'retried',
           'failed_retryable', 'in_progress', 'held', next FROM idem.outbox o WHERE o.id = row_id;
    RETURN row_id;
END $$;
