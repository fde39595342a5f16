-- Events that wait: an unmatched one for its intent, a deferred one for another try. `retry_at` is when the reconciler
-- looks at it again; NULL: not by time. `tries` counts failures to apply it, from which a dead letter comes.

ALTER TABLE idem.webhook_events ALTER COLUMN verdict TYPE text COLLATE "C";
ALTER TABLE idem.webhook_events
    ADD COLUMN reference  text        COLLATE "C",
    ADD COLUMN retry_at   timestamptz,
    ADD COLUMN tries      integer     NOT NULL DEFAULT 0,
    ADD CONSTRAINT webhook_verdict_is_known CHECK (verdict IN (
        'applied', 'stored', 'agrees', 'conflict', 'noted', 'ignored', 'unmatched', 'deferred')),
    ADD CONSTRAINT only_a_waiting_event_is_tried_again
        CHECK (retry_at IS NULL OR verdict IN ('unmatched', 'deferred'));
CREATE INDEX webhook_events_to_try ON idem.webhook_events (retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX webhook_events_by_reference ON idem.webhook_events (provider, account, reference)
    WHERE verdict = 'unmatched' AND reference IS NOT NULL;

-- An event may come before we know the provider's reference: it is due at once when that is written, by whomever.
-- Who holds an event is about to decide over it, and is not waited for.
CREATE FUNCTION idem.wake_unmatched_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE idem.webhook_events w SET retry_at = statement_timestamp()
     WHERE w.id = ANY (ARRAY(
               SELECT e.id FROM idem.webhook_events e
                WHERE e.verdict = 'unmatched' AND e.provider = NEW.provider AND e.account = NEW.account
                  AND e.reference = NEW.provider_reference
                  FOR UPDATE SKIP LOCKED));
    RETURN NULL;
END $$;
CREATE TRIGGER reference_wakes_unmatched_events AFTER UPDATE OF provider_reference ON idem.intents FOR EACH ROW
    WHEN (NEW.provider_reference IS NOT NULL AND NEW.provider_reference IS DISTINCT FROM OLD.provider_reference)
    EXECUTE FUNCTION idem.wake_unmatched_events();
