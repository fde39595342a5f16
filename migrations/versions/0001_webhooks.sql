-- Events that wait: an unmatched one for its intent, a deferred one for another try. Also events that are fetched before
-- they are believed, events of batches, later facts, and events that are about no call of this installation.
--
-- hint: matched, and what it says is asked of the provider first. early: a later fact, told once its call has ended.
-- foreign: about nothing of ours, as far as idem can know; still tried when its reference is written. unconfirmed: a
-- hint of which the provider has nothing.
CREATE TABLE idem.webhook_events (
    id           uuid        PRIMARY KEY DEFAULT idem.uuid7(),
    provider     text        COLLATE "C" NOT NULL,
    account      text        COLLATE "C" NOT NULL,
    event_id     text        COLLATE "C" NOT NULL,
    type         text,
    fate      text        COLLATE "C" NOT NULL,
    intent_id    uuid,
    outbox_id    uuid,
    reference    text        COLLATE "C",
    received_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    -- When the reconciler tries it again; NULL: not by time.
    retry_at     timestamptz,
    -- Failures to apply it, from which a dead letter comes.
    tries        integer     NOT NULL DEFAULT 0,
    -- Where in the kept body the event is.
    place        integer     NOT NULL DEFAULT 0,
    -- Look-ups of a hint that found nothing.
    absences     integer     NOT NULL DEFAULT 0,
    -- It is signed, but its time stamp was not near the time at which it came, so what it says is never a proof, whenever
    -- it is read; only the provider, or a delivery in time, can confirm it.
    out_of_time  boolean     NOT NULL DEFAULT false,
    CONSTRAINT one_row_an_event UNIQUE (provider, account, event_id),
    CONSTRAINT webhook_fate_is_known CHECK (fate IN (
        'applied', 'stored', 'agrees', 'later_fact', 'conflict', 'noted', 'ignored', 'unmatched', 'deferred', 'hint',
        'early', 'foreign', 'unconfirmed')),
    CONSTRAINT only_a_waiting_event_is_tried_again
        CHECK (retry_at IS NULL OR fate IN ('unmatched', 'deferred', 'hint', 'early', 'foreign'))
);
CREATE INDEX webhook_events_to_try ON idem.webhook_events (retry_at) WHERE retry_at IS NOT NULL AND fate <> 'hint';
CREATE INDEX webhook_events_to_fetch ON idem.webhook_events (provider, account, retry_at) WHERE fate = 'hint';
CREATE INDEX webhook_events_unmatched ON idem.webhook_events (received_at) WHERE fate = 'unmatched';
CREATE INDEX webhook_events_by_reference ON idem.webhook_events (provider, account, reference)
    WHERE fate IN ('unmatched', 'foreign') AND reference IS NOT NULL;

CREATE TABLE idem.webhook_bodies (
    webhook_event_id  uuid        PRIMARY KEY,
    headers           jsonb       NOT NULL,
    body              bytea       NOT NULL,
    received_at       timestamptz NOT NULL DEFAULT statement_timestamp()
);

-- An event may come before we know the provider's reference: it is due at once when that is written, by whomever.
-- Who holds an event is about to decide over it, and is not waited for.
-- Once for all rows of a statement. Also where the reference is as it was: a transition table does not say what has changed,
-- and there is seldom an event.
CREATE FUNCTION idem.wake_unmatched_events() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- In the order of its index, so that no session reads the whole table for it.
    IF (SELECT e.id FROM idem.webhook_events e
         WHERE e.fate IN ('unmatched', 'foreign') AND e.reference IS NOT NULL
         ORDER BY e.provider, e.account, e.reference LIMIT 1) IS NULL THEN
        RETURN NULL;
    END IF;
    UPDATE idem.webhook_events w SET retry_at = statement_timestamp()
     WHERE w.id = ANY (ARRAY(
               SELECT e.id
                 FROM written n CROSS JOIN LATERAL (
                      SELECT e.id FROM idem.webhook_events e
                       WHERE e.fate IN ('unmatched', 'foreign') AND e.provider = n.provider AND e.account = n.account
                         AND e.reference = n.provider_reference
                         FOR UPDATE SKIP LOCKED) AS e
                WHERE n.provider_reference IS NOT NULL));
    RETURN NULL;
END $$;
CREATE TRIGGER reference_wakes_unmatched_events AFTER UPDATE ON idem.intents
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION idem.wake_unmatched_events();
