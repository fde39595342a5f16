-- Events that are fetched before they are believed, batches, later facts, and events that are nobody's here.
--
-- hint: matched, and what it says is asked of the provider first. early: a later fact, told once its call has ended.
-- foreign: about nothing of ours, as far as anybody can tell; still tried when its reference is written. unconfirmed: a
-- hint of which the provider has nothing. `place`: where in the kept body the event stands; `absents`: looks of a hint
-- that found nothing. `out_of_time`: it is signed, but its time stamp was not near the time at which it came, so what it
-- says is never a proof, whenever it is read; only the provider, or a delivery in time, can confirm it.
ALTER TABLE idem.webhook_events
    ADD COLUMN place    integer  NOT NULL DEFAULT 0,
    ADD COLUMN absents  integer NOT NULL DEFAULT 0,
    ADD COLUMN out_of_time boolean NOT NULL DEFAULT false,
    DROP CONSTRAINT webhook_verdict_is_known,
    DROP CONSTRAINT only_a_waiting_event_is_tried_again,
    ADD CONSTRAINT webhook_verdict_is_known CHECK (verdict IN (
        'applied', 'stored', 'agrees', 'later_fact', 'conflict', 'noted', 'ignored', 'unmatched', 'deferred', 'hint',
        'early', 'foreign', 'unconfirmed')),
    ADD CONSTRAINT only_a_waiting_event_is_tried_again
        CHECK (retry_at IS NULL OR verdict IN ('unmatched', 'deferred', 'hint', 'early', 'foreign'));

-- Hints wait for their own lane: as many as there may be while a provider is away, they hold up no other event.
DROP INDEX idem.webhook_events_to_try;
CREATE INDEX webhook_events_to_try ON idem.webhook_events (retry_at) WHERE retry_at IS NOT NULL AND verdict <> 'hint';
CREATE INDEX webhook_events_to_fetch ON idem.webhook_events (provider, account, retry_at) WHERE verdict = 'hint';
CREATE INDEX webhook_events_unmatched ON idem.webhook_events (received_at) WHERE verdict = 'unmatched';
DROP INDEX idem.webhook_events_by_reference;
CREATE INDEX webhook_events_by_reference ON idem.webhook_events (provider, account, reference)
    WHERE verdict IN ('unmatched', 'foreign') AND reference IS NOT NULL;

CREATE OR REPLACE FUNCTION idem.wake_unmatched_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE idem.webhook_events w SET retry_at = statement_timestamp()
     WHERE w.id = ANY (ARRAY(
               SELECT e.id FROM idem.webhook_events e
                WHERE e.verdict IN ('unmatched', 'foreign') AND e.provider = NEW.provider AND e.account = NEW.account
                  AND e.reference = NEW.provider_reference
                  FOR UPDATE SKIP LOCKED));
    RETURN NULL;
END $$;

-- A hint stands beside its row like a proof: no claim, retry, redrive or cancel passes it (hazard 53). It proves nothing,
-- so nobody folds it; it goes when the provider has been asked.
ALTER TABLE idem.proofs
    DROP CONSTRAINT proofs_outcome_check,
    DROP CONSTRAINT final_proof_has_answer,
    ADD CONSTRAINT proofs_outcome_check CHECK (outcome IN ('succeeded', 'interim', 'refused', 'pending', 'hint')),
    ADD CONSTRAINT final_proof_has_answer
        CHECK (outcome IN ('pending', 'interim', 'hint')
               OR num_nulls(answer_status, answer_headers, answer_body) = 0);

-- Once for each event, also after it was discarded.
CREATE UNIQUE INDEX one_dead_letter_an_unmatched_event ON idem.dead_letters (webhook_event_id)
    WHERE reason = 'unmatched_webhook';
