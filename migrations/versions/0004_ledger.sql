-- The ledger check: what succeeded in a time must be on the provider's own list of that time.
CREATE INDEX intents_succeeded ON idem.intents (provider, account, settled_at, id)
    WHERE state = 'completed' AND outcome = 'succeeded';

-- Once for each class, provider, account and reference, also after an operator has decided it: the next check finds the
-- same object again.
CREATE UNIQUE INDEX one_dead_letter_a_discrepancy ON idem.dead_letters (subject)
    WHERE reason = 'discrepancy' AND subject IS NOT NULL;

-- What a provider has said of a call that was no success, for people: redacted, the newest of each outcome, kept for a
-- shorter time than evidence.
CREATE TABLE idem.provider_answers (
    outbox_id    uuid        NOT NULL,
    outcome      text        COLLATE "C" NOT NULL,
    intent_id    uuid        NOT NULL,
    attempt      integer     NOT NULL,
    http_status  smallint,
    message      text,
    body         text,
    times        integer     NOT NULL DEFAULT 1,
    at           timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (outbox_id, outcome)
);
CREATE INDEX provider_answers_by_intent ON idem.provider_answers (intent_id);
CREATE INDEX provider_answers_by_age ON idem.provider_answers (at);

-- `idem find`, and the same over HTTP for one tenant: by label (its beginning, because an index row has a limit), by the
-- client's key, by the provider's reference, by a provider key of any generation.
CREATE INDEX intents_by_label ON idem.intents (left(label, 200), tenant_id, id) WHERE label IS NOT NULL;
CREATE INDEX intents_by_key ON idem.intents (idempotency_key, id);
CREATE INDEX intents_by_any_reference ON idem.intents (provider_reference, tenant_id, id)
    WHERE provider_reference IS NOT NULL;
CREATE INDEX requests_by_provider_key ON idem.requests (provider_key);
