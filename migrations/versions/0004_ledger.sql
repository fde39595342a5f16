-- The ledger check: what succeeded in a time must be on the provider's own list of that time.
CREATE INDEX intents_succeeded ON idem.intents (provider, account, settled_at, id)
    WHERE state = 'completed' AND outcome = 'succeeded';

-- Once for each class, provider, account and reference, also after an operator has decided it: the next check finds the
-- same object again.
CREATE UNIQUE INDEX one_dead_letter_a_discrepancy ON idem.dead_letters (subject)
    WHERE reason = 'discrepancy' AND subject IS NOT NULL;
