-- What happened, what is told of it, and what waits for a person.

-- Append-only. Partitioned later by intent_id (UUIDv7), which is why it leads the unique index. No foreign key, here and for
-- events: who writes it has read the intent in the same statement, and intents are never deleted
-- (docs/decisions/0056). No primary key: the id is for the order alone.
CREATE TABLE idem.evidence (
    intent_id           uuid        NOT NULL,
    id                  uuid        NOT NULL DEFAULT idem.uuid7(),
    outbox_id           uuid,
    at                  timestamptz NOT NULL DEFAULT statement_timestamp(),
    step                smallint,
    attempt             integer,
    token               uuid,
    source              text        COLLATE "C" NOT NULL,
    kind                text        COLLATE "C" NOT NULL,
    outcome             text        COLLATE "C",
    http_status         smallint,
    provider_reference  text        COLLATE "C",
    from_state          text        COLLATE "C",
    to_state            text        COLLATE "C",
    from_status         text        COLLATE "C",
    to_status           text        COLLATE "C",
    holder              text,
    claimed_at          timestamptz,
    claimed_until       timestamptz,
    database_role       text        NOT NULL DEFAULT session_user,
    details             jsonb       NOT NULL DEFAULT '{}'
);
-- A publication of all tables can then delete what retention deletes.
ALTER TABLE idem.evidence REPLICA IDENTITY FULL;
CREATE UNIQUE INDEX evidence_is_written_once ON idem.evidence (intent_id, outbox_id, attempt, token, source, kind);

-- The columns that a change-data-capture outbox router expects; numbered per intent.
CREATE TABLE idem.events (
    id             uuid        NOT NULL DEFAULT idem.uuid7(),
    aggregatetype  text        COLLATE "C" NOT NULL DEFAULT 'intent',
    aggregateid    uuid        NOT NULL,
    number         integer     NOT NULL,
    type           text        COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (aggregateid, number),
    CONSTRAINT event_type_is_known CHECK (type IN ('step', 'completed', 'rested', 'partial', 'corrected', 'later_fact'))
);

CREATE TABLE idem.dead_letters (
    id                uuid        PRIMARY KEY DEFAULT idem.uuid7(),
    intent_id         uuid        REFERENCES idem.intents (id),
    webhook_event_id  uuid,
    subject           text        COLLATE "C",
    reason            text        COLLATE "C" NOT NULL,
    details           jsonb       NOT NULL DEFAULT '{}',
    seen              integer     NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL DEFAULT statement_timestamp(),
    resolved_at       timestamptz,
    resolution        text        COLLATE "C",
    resolved_by       text        COLLATE "C",
    note              text,
    CONSTRAINT dead_letter_reason_is_known CHECK (reason IN (
        'too_late', 'unrenderable', 'rejected', 'crashes_worker', 'reconcile_exhausted', 'not_settleable', 'partial',
        'pending_too_long', 'unreadable_row', 'conflict', 'possible_duplicate', 'discrepancy', 'unmatched_webhook',
        'handler_failed', 'answer_failed', 'event_failed')),
    CONSTRAINT dead_letter_is_about_something CHECK (num_nonnulls(intent_id, webhook_event_id, subject) >= 1),
    CONSTRAINT resolved_dead_letter_says_how
        CHECK ((resolved_at IS NULL) = (resolution IS NULL) AND (resolved_at IS NULL) = (resolved_by IS NULL))
);
CREATE UNIQUE INDEX one_open_dead_letter_an_intent_and_reason ON idem.dead_letters (intent_id, reason)
    WHERE resolved_at IS NULL;
CREATE UNIQUE INDEX one_open_dead_letter_a_subject_and_reason ON idem.dead_letters (subject, reason)
    WHERE resolved_at IS NULL AND intent_id IS NULL;
CREATE INDEX open_dead_letters ON idem.dead_letters (created_at) WHERE resolved_at IS NULL;
CREATE INDEX resolved_dead_letters ON idem.dead_letters (resolved_at, id) WHERE resolved_at IS NOT NULL;
CREATE INDEX dead_letters_by_intent ON idem.dead_letters (intent_id);
CREATE INDEX dead_letters_by_webhook ON idem.dead_letters (webhook_event_id) WHERE webhook_event_id IS NOT NULL;

-- Once for each event, also after it was discarded.
CREATE UNIQUE INDEX one_dead_letter_an_unmatched_event ON idem.dead_letters (webhook_event_id)
    WHERE reason = 'unmatched_webhook';

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
