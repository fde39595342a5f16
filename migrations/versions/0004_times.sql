-- Every time of a key, an intent and a row has a year that a client's library can read: one that has not would make every list
-- that shows it fail, for good. `handler_work.due_at` may be infinite: nothing but SQL reads it.
ALTER TABLE idem.intents ADD CONSTRAINT intent_times_have_years_that_are_read CHECK (
    greatest(wanted_at, created_at, settled_at)
        < timestamptz '10000-01-01 00:00+00'
    AND least(wanted_at, created_at, settled_at)
        >= timestamptz '0001-01-02 00:00+00');
ALTER TABLE idem.idempotency_keys ADD CONSTRAINT key_times_have_years_that_are_read CHECK (
    greatest(created_at, completed_at, expires_at)
        < timestamptz '10000-01-01 00:00+00'
    AND least(created_at, completed_at, expires_at)
        >= timestamptz '0001-01-02 00:00+00');
ALTER TABLE idem.outbox ADD CONSTRAINT row_times_have_years_that_are_read CHECK (
    greatest(available_at, start_before, status_since, claimed_at, claimed_until, started_at, first_sent_at,
              imported_sent_at, quiet_after, redrive_at, doubted_since, word_since, scheduled_at)
        < timestamptz '10000-01-01 00:00+00'
    AND least(available_at, start_before, status_since, claimed_at, claimed_until, started_at, first_sent_at,
              imported_sent_at, quiet_after, redrive_at, doubted_since, word_since, scheduled_at)
        >= timestamptz '0001-01-02 00:00+00');
