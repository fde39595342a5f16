-- Tables of idem. Times are timestamptz by the database's clock: statement_timestamp() for leases, due times and
-- guards, now() for created_at. Text that is compared or ordered by idem is COLLATE "C", so that a database in any
-- locale gives the same. No foreign key points at an outbox row: evidence and requests outlive it.

-- RFC 9562: 48 bits of Unix milliseconds, then version 7 and the variant over random bits. It is a column's default, so
-- it runs in sessions with any search_path: its names are looked up here, once, and not in each session.
CREATE FUNCTION idem.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
               PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;

CREATE TABLE idem.installation (
    only_one             boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    environment          text        NOT NULL,
    secret               bytea       NOT NULL CHECK (octet_length(secret) >= 32),
    system_identifier    bigint      NOT NULL,
    timeline             integer     NOT NULL,
    database_name        text        NOT NULL,
    -- A copy in the place of a database has another number, and tables that a dump has made have other ones.
    database_oid         bigint      NOT NULL,
    table_oid            bigint      NOT NULL,
    changed_at           timestamptz,
    doubted_at           timestamptz,
    recovered_at         timestamptz,
    lost_at              timestamptz,
    evidence_retention   interval    NOT NULL DEFAULT '400 days',
    created_at           timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE idem.operations (
    name          text        COLLATE "C" PRIMARY KEY,
    version       integer     NOT NULL DEFAULT 1,
    provider      text        COLLATE "C" NOT NULL,
    account       text        COLLATE "C" NOT NULL,
    settings      jsonb       NOT NULL DEFAULT '{}',
    updated_at    timestamptz NOT NULL DEFAULT now()
);

-- The ledger. `state` is never `expired`: the intent outlives its key. `outcome` says what `completed` means.
CREATE TABLE idem.intents (
    id                  uuid        PRIMARY KEY,
    tenant_id           text        COLLATE "C" NOT NULL,
    operation           text        COLLATE "C" NOT NULL,
    idempotency_key     text        COLLATE "C" NOT NULL,
    state               text        COLLATE "C" NOT NULL DEFAULT 'in_progress',
    outcome             text        COLLATE "C",
    step                smallint    NOT NULL DEFAULT 1,
    version             integer     NOT NULL DEFAULT 1,
    provider            text        COLLATE "C",
    account             text        COLLATE "C",
    provider_reference  text        COLLATE "C",
    label               text,
    params              jsonb       NOT NULL,
    result              jsonb,
    wanted_at           timestamptz NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    settled_at          timestamptz,
    -- As whom the call was sent that completed it (outbox.sent_as): what is found of it now shows that the same account
    -- answers.
    sent_as             bigint,
    CONSTRAINT intent_state_is_known CHECK (state IN ('in_progress', 'completed', 'failed_retryable', 'unknown')),
    CONSTRAINT intent_outcome_is_known CHECK (outcome IN ('succeeded', 'refused', 'cancelled', 'local')),
    CONSTRAINT completed_intent_says_how CHECK ((state = 'completed') = (outcome IS NOT NULL)),
    CONSTRAINT completed_intent_has_time CHECK ((state = 'completed') = (settled_at IS NOT NULL))
);
CREATE INDEX intents_by_reference ON idem.intents (provider, account, provider_reference)
    WHERE provider_reference IS NOT NULL;
CREATE INDEX intents_to_ask_about ON idem.intents (provider, account, id)
    WHERE state = 'completed' AND outcome = 'succeeded' AND provider_reference IS NOT NULL;
CREATE INDEX intents_by_tenant ON idem.intents (tenant_id, id);
-- One for each filter of a tenant's list: a page reads what it shows, whatever others, other states or other operations
-- have. Each begins with another column, so that no statistics make the planner take one for another.
CREATE INDEX intents_by_state ON idem.intents (state, tenant_id, id);
CREATE INDEX intents_by_operation ON idem.intents (operation, tenant_id, state, id);

CREATE TABLE idem.idempotency_keys (
    tenant_id                text        COLLATE "C" NOT NULL,
    operation                text        COLLATE "C" NOT NULL,
    idempotency_key          text        COLLATE "C" NOT NULL,
    fingerprint              text        COLLATE "C" NOT NULL,
    state                    text        COLLATE "C" NOT NULL DEFAULT 'in_progress',
    intent_id                uuid        NOT NULL REFERENCES idem.intents (id),
    response_status          smallint,
    response_headers         jsonb,
    response_body            bytea,
    response_schema_version  integer,
    last_error_code          text,
    last_error_message       text,
    recovery_point           smallint    NOT NULL DEFAULT 0,
    created_at               timestamptz NOT NULL DEFAULT now(),
    completed_at             timestamptz,
    expires_at               timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, operation, idempotency_key),
    CONSTRAINT key_length CHECK (length(idempotency_key) BETWEEN 1 AND 255),
    CONSTRAINT tenant_length CHECK (octet_length(tenant_id) <= 255),
    CONSTRAINT key_state_is_known
        CHECK (state IN ('in_progress', 'completed', 'failed_retryable', 'unknown', 'expired')),
    CONSTRAINT final_key_has_time CHECK ((state IN ('completed', 'expired')) = (completed_at IS NOT NULL)),
    CONSTRAINT completed_key_has_answer
        CHECK ((state = 'completed') = (response_status IS NOT NULL)
           AND (state = 'completed') = (response_headers IS NOT NULL)
           AND (state = 'completed') = (response_body IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX keys_to_expire ON idem.idempotency_keys (expires_at, intent_id)
    WHERE state IN ('completed', 'failed_retryable', 'expired');
CREATE INDEX keys_by_intent ON idem.idempotency_keys (intent_id);

-- One provider call that is to be made. Small, narrow and hot: the request's bytes are in idem.requests.
CREATE TABLE idem.outbox (
    id                  uuid        PRIMARY KEY,
    intent_id           uuid        NOT NULL REFERENCES idem.intents (id),
    available_at        timestamptz NOT NULL,
    start_before        timestamptz NOT NULL,
    status_since        timestamptz NOT NULL,
    claimed_at          timestamptz,
    claimed_until       timestamptz,
    started_at          timestamptz,
    first_sent_at       timestamptz,
    -- When the system before has sent it first, of a call in flight that was imported. Never cleared: what the provider
    -- remembers of it counts from there, also where first_sent_at is not known any more.
    imported_sent_at    timestamptz,
    -- Of a call that was taken over without its request: what is known of it is the key, or the reference alone. What is
    -- frozen for it was rendered here, and shows nothing of what was sent.
    imported_as         text        COLLATE "C" CHECK (imported_as IN ('key', 'reference')),
    quiet_after         timestamptz,
    redrive_at          timestamptz,
    doubted_since       timestamptz,
    -- The first send under this key of which only an operator's word says that it did not happen; until a verdict proves
    -- it, or a new key takes its place. What the provider remembers of it counts from there (docs/decisions/0028).
    word_since          timestamptz,
    -- When the schedule's next look is due, while a look that somebody ordered comes before it.
    scheduled_at        timestamptz,
    -- As whom the call was sent first, and how it could be found then: a digest of the credentials, or of the confirmed
    -- account, and one of the rules of the look-ups (docs/decisions/0040). NULL: not sent, or by code that is not idem's;
    -- the first look then stands for it.
    sent_as             bigint,
    claim_token         uuid,
    provider_key        uuid        NOT NULL,
    attempt             integer     NOT NULL DEFAULT 0,
    replay_window       integer     NOT NULL DEFAULT 0,
    looks               integer     NOT NULL DEFAULT 0,
    absents             integer     NOT NULL DEFAULT 0,
    misses              integer     NOT NULL DEFAULT 0,
    step                smallint    NOT NULL DEFAULT 1,
    generation          smallint    NOT NULL DEFAULT 1,
    format_version      smallint    NOT NULL DEFAULT 1,
    redrives            smallint    NOT NULL DEFAULT 0,
    sweeps              smallint    NOT NULL DEFAULT 0,
    inline              boolean     NOT NULL DEFAULT false,
    marks_start         boolean     NOT NULL DEFAULT false,
    status              text        COLLATE "C" NOT NULL,
    operation           text        COLLATE "C" NOT NULL,
    provider            text        COLLATE "C" NOT NULL,
    account             text        COLLATE "C" NOT NULL,
    origin              text        COLLATE "C" NOT NULL,
    claimed_by          text        COLLATE "C",
    provider_reference  text        COLLATE "C",
    ordering_key        text        COLLATE "C",
    traceparent         text,
    CONSTRAINT outbox_status_is_known
        CHECK (status IN ('unfrozen', 'waiting', 'pending', 'claimed', 'unknown', 'awaiting', 'held')),
    CONSTRAINT claimed_row_has_claim CHECK (status <> 'claimed' OR claim_token IS NOT NULL),
    CONSTRAINT claim_is_whole
        CHECK ((claim_token IS NULL) = (claimed_by IS NULL)
           AND (claim_token IS NULL) = (claimed_at IS NULL)
           AND (claim_token IS NULL) = (claimed_until IS NULL)),
    CONSTRAINT claim_only_where_it_may_be CHECK (claim_token IS NULL OR status IN ('claimed', 'unknown', 'awaiting')),
    CONSTRAINT inline_rows_are_not_queued CHECK (NOT inline OR status NOT IN ('pending', 'waiting', 'unfrozen')),
    CONSTRAINT queued_row_was_never_sent
        CHECK (first_sent_at IS NULL OR status IN ('claimed', 'unknown', 'awaiting')),
    CONSTRAINT redrive_waits_in_held CHECK (redrive_at IS NULL OR status = 'held'),
    CONSTRAINT waiting_row_has_order CHECK (status <> 'waiting' OR ordering_key IS NOT NULL),
    CONSTRAINT counters_do_not_go_below_zero
        CHECK (least(attempt, looks, absents, misses, redrives, sweeps, replay_window) >= 0)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX one_open_row_an_intent ON idem.outbox (intent_id);
CREATE INDEX outbox_due ON idem.outbox (provider, account, available_at, id) WHERE status = 'pending';
CREATE INDEX outbox_leases ON idem.outbox (claimed_until, id) WHERE status = 'claimed';
CREATE INDEX outbox_to_settle ON idem.outbox (provider, account, available_at, id)
    WHERE status IN ('unknown', 'awaiting');
CREATE INDEX outbox_not_asked ON idem.outbox (provider, account) WHERE misses > 0 AND status IN ('unknown', 'awaiting');
CREATE INDEX outbox_claims ON idem.outbox (provider, account, claim_token) WHERE claim_token IS NOT NULL;
CREATE INDEX outbox_too_old ON idem.outbox (start_before, id) WHERE status IN ('pending', 'waiting', 'unfrozen');
CREATE INDEX outbox_redrives ON idem.outbox (redrive_at, id) WHERE redrive_at IS NOT NULL;
CREATE INDEX outbox_doubted ON idem.outbox (doubted_since, id)
    WHERE doubted_since IS NOT NULL AND status IN ('pending', 'waiting', 'unfrozen', 'held');
-- The newest moment that a provider's memory counts from, without those that are marked as not known: one that lies
-- ahead of the clock is at the end of it (outbox/recovery/ahead.py).
CREATE INDEX outbox_sent_ahead ON idem.outbox ((greatest(
        nullif(first_sent_at, timestamptz '9999-01-01 00:00+00'), nullif(doubted_since, timestamptz '9999-01-01 00:00+00'),
        nullif(word_since, timestamptz '9999-01-01 00:00+00'))), id)
    WHERE greatest(
        nullif(first_sent_at, timestamptz '9999-01-01 00:00+00'), nullif(doubted_since, timestamptz '9999-01-01 00:00+00'),
        nullif(word_since, timestamptz '9999-01-01 00:00+00')) IS NOT NULL;
CREATE INDEX outbox_order ON idem.outbox (ordering_key, id) WHERE ordering_key IS NOT NULL;
CREATE INDEX outbox_at_rest ON idem.outbox (status_since, id) WHERE status = 'held';
CREATE INDEX outbox_unfrozen ON idem.outbox (available_at) WHERE status = 'unfrozen';

-- Rows that the database may have forgotten a send of, and that recovery has still to doubt: nobody claims, takes, settles
-- or takes up a row that is listed here. No foreign key, because to list a row must lock none.
CREATE TABLE idem.doubts (
    outbox_id  uuid        PRIMARY KEY,
    listed_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    details    jsonb       NOT NULL
);

-- The frozen bytes, written once; a new generation of the provider key is a new row. Outlives the outbox row, so
-- that a late proof still finds its intent and step.
CREATE TABLE idem.requests (
    outbox_id     uuid        NOT NULL,
    generation    smallint    NOT NULL DEFAULT 1,
    step          smallint    NOT NULL DEFAULT 1,
    intent_id     uuid        NOT NULL,
    provider_key  uuid        NOT NULL,
    provider      text        COLLATE "C" NOT NULL,
    account       text        COLLATE "C" NOT NULL,
    method        text        NOT NULL,
    path          text        NOT NULL,
    headers       jsonb       NOT NULL,
    body          bytea       NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (outbox_id, generation)
);
CREATE INDEX requests_by_key ON idem.requests (provider, account, provider_key);
CREATE INDEX requests_by_intent ON idem.requests (intent_id);

-- What is known but could not be applied yet (live claim, locked row): storing needs no lock on the outbox row.
-- A row leaves when it is folded or applied; what it said stays in evidence.
CREATE TABLE idem.proofs (
    id              uuid        PRIMARY KEY DEFAULT idem.uuid7(),
    outbox_id       uuid        NOT NULL,
    intent_id       uuid        NOT NULL REFERENCES idem.intents (id),
    step            smallint    NOT NULL DEFAULT 1,
    source          text        COLLATE "C" NOT NULL,
    attempt         integer,
    outcome         text        COLLATE "C" NOT NULL CHECK (outcome IN ('succeeded', 'refused', 'pending')),
    reference       text        COLLATE "C",
    status          text        COLLATE "C",
    fields          jsonb       NOT NULL DEFAULT '{}',
    http_status     smallint,
    answer_status   smallint,
    answer_headers  jsonb,
    answer_body     bytea,
    stored_at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT final_proof_has_answer
        CHECK ((outcome = 'pending') OR num_nulls(answer_status, answer_headers, answer_body) = 0)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX proofs_by_row ON idem.proofs (outbox_id);
CREATE INDEX proofs_by_age ON idem.proofs (stored_at);
CREATE INDEX proofs_by_intent ON idem.proofs (intent_id);

-- Append-only. Partitioned later by intent_id (UUIDv7), which is why it leads the primary key.
CREATE TABLE idem.evidence (
    intent_id           uuid        NOT NULL REFERENCES idem.intents (id),
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
    database_role       text        NOT NULL DEFAULT current_user,
    details             jsonb       NOT NULL DEFAULT '{}',
    PRIMARY KEY (intent_id, id)
);
CREATE UNIQUE INDEX evidence_is_written_once ON idem.evidence (intent_id, outbox_id, attempt, token, source, kind);

-- The columns that a change-data-capture outbox router expects; numbered per intent.
CREATE TABLE idem.events (
    id             uuid        NOT NULL DEFAULT idem.uuid7(),
    aggregatetype  text        COLLATE "C" NOT NULL DEFAULT 'intent',
    aggregateid    uuid        NOT NULL REFERENCES idem.intents (id),
    number         integer     NOT NULL,
    type           text        COLLATE "C" NOT NULL,
    payload        jsonb       NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (aggregateid, number),
    CONSTRAINT event_type_is_known CHECK (type IN ('completed', 'rested', 'corrected', 'later_fact'))
);

CREATE TABLE idem.webhook_events (
    id           uuid        PRIMARY KEY DEFAULT idem.uuid7(),
    provider     text        COLLATE "C" NOT NULL,
    account      text        COLLATE "C" NOT NULL,
    event_id     text        COLLATE "C" NOT NULL,
    type         text,
    verdict      text        NOT NULL,
    intent_id    uuid,
    outbox_id    uuid,
    received_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT one_row_an_event UNIQUE (provider, account, event_id)
);
CREATE TABLE idem.webhook_bodies (
    webhook_event_id  uuid        PRIMARY KEY,
    headers           jsonb       NOT NULL,
    body              bytea       NOT NULL,
    received_at       timestamptz NOT NULL DEFAULT statement_timestamp()
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
        'handler_failed')),
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

CREATE TABLE idem.lanes (
    provider     text        COLLATE "C" NOT NULL,
    account      text        COLLATE "C" NOT NULL,
    paused       boolean     NOT NULL DEFAULT false,
    paused_by    text,
    reason       text,
    concurrency  integer     CHECK (concurrency > 0),
    changed_at   timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (provider, account)
);

-- A daemon's id is fresh per start. `tokens` are the claims that it holds at its last sign of life.
CREATE TABLE idem.daemons (
    id          text        COLLATE "C" PRIMARY KEY,
    kind        text        NOT NULL,
    host        text        NOT NULL,
    pid         integer     NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    seen_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    passed_at   timestamptz,
    -- Grows by one with each sign of life: what a daemon remembers of it tells a restore.
    beats       bigint      NOT NULL DEFAULT 1,
    ended_at    timestamptz,
    ended_how   text        COLLATE "C" CHECK (ended_how IN ('clean', 'reaped')),
    tokens      uuid[]      NOT NULL DEFAULT '{}',
    last_pass   jsonb       NOT NULL DEFAULT '{}'
);

CREATE TABLE idem.api_tokens (
    token_sha256  bytea       PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    tenant_id     text        COLLATE "C" NOT NULL,
    label         text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    revoked_at    timestamptz
);

-- Marks of settled handlers: found by missing marks, never by a cursor over ids.
CREATE TABLE idem.handled_events (
    event_id    uuid        NOT NULL,
    handler     text        COLLATE "C" NOT NULL,
    handled_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (event_id, handler)
);
