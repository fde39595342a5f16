-- The calls that are to be made, the bytes of their requests, and what is known of them but not applied yet. No foreign key
-- points at an outbox row: evidence and requests outlive it.

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
    imported_as         text        COLLATE "C",
    quiet_after         timestamptz,
    redrive_at          timestamptz,
    doubted_since       timestamptz,
    -- The time of the first send under this key that an operator denies, without a proof. A verdict or a new key clears
    -- it. What the provider remembers counts from this time (docs/decisions/0028).
    denied_sent_at      timestamptz,
    -- When the schedule's next look-up is due, while one that was ordered comes before it.
    scheduled_at        timestamptz,
    -- As whom the call was sent first, and how it could be found then: a digest of the credentials, or of the confirmed
    -- account, and one of the rules of the look-ups (docs/decisions/0040). NULL: not sent, or by code that is not idem's;
    -- the first look-up then decides.
    sent_as             bigint,
    -- Its place among the open rows of its ordering key, taken under the key's lock, so that it is the order of the
    -- commits (0001_order.sql). NULL with a key: it has no place, because an operator has taken it out.
    ordering_number     bigint,
    claim_token         uuid,
    provider_key        uuid        NOT NULL,
    attempt             integer     NOT NULL DEFAULT 0,
    replay_window       integer     NOT NULL DEFAULT 0,
    lookups             integer     NOT NULL DEFAULT 0,
    absences            integer     NOT NULL DEFAULT 0,
    failures            integer     NOT NULL DEFAULT 0,
    step                smallint    NOT NULL DEFAULT 1,
    generation          smallint    NOT NULL DEFAULT 1,
    format_version      smallint    NOT NULL DEFAULT 1,
    redrives            smallint    NOT NULL DEFAULT 0,
    sweeps              smallint    NOT NULL DEFAULT 0,
    inline              boolean     NOT NULL DEFAULT false,
    marks_start         boolean     NOT NULL DEFAULT false,
    -- What is sent under the row's key gets the same failure again, or it was cancelled: no send under it any more, the
    -- next one is made under a new key.
    key_burned          boolean     NOT NULL DEFAULT false,
    -- A cancel may have left for the row's key, so that only its answer says what is there.
    cancel_sent         boolean     NOT NULL DEFAULT false,
    -- An attempt ended with a 5xx of the provider, which may still carry it out.
    server_error        boolean     NOT NULL DEFAULT false,
    -- A refusal of it holds its ordering key until an operator says that the others may go on (idem.order_holds).
    refusal_holds       boolean     NOT NULL DEFAULT false,
    status              text        COLLATE "C" NOT NULL,
    -- Whether a person must approve the call before it is made (docs/decisions/0049). NULL: it needs no approval.
    -- `undecided`: the worker that renders it decides. `wanted`, or `wanted_of_another` than the one who asked: not given
    -- yet. `given`: it may be sent.
    approval            text        COLLATE "C",
    -- So that a claim gives every tenant its turn; a trigger writes it.
    tenant_id           text        COLLATE "C" NOT NULL,
    operation           text        COLLATE "C" NOT NULL,
    provider            text        COLLATE "C" NOT NULL,
    account             text        COLLATE "C" NOT NULL,
    origin              text        COLLATE "C" NOT NULL,
    claimed_by          text        COLLATE "C",
    provider_reference  text        COLLATE "C",
    ordering_group      text        COLLATE "C",
    ordering_key        text        COLLATE "C",
    traceparent         text,
    step_name           text        COLLATE "C"  -- of a flow, as its intent's plan has it; NULL: one call alone
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX one_open_row_an_intent ON idem.outbox (intent_id);
CREATE INDEX outbox_due ON idem.outbox (provider, account, available_at, id) WHERE status = 'pending';
CREATE INDEX outbox_leases ON idem.outbox (claimed_until, id) WHERE status = 'claimed';
CREATE INDEX outbox_to_settle ON idem.outbox (provider, account, available_at, id)
    WHERE status IN ('unknown', 'awaiting');
CREATE INDEX outbox_failing_lookups ON idem.outbox (provider, account)
    WHERE failures > 0 AND status IN ('unknown', 'awaiting');
CREATE INDEX outbox_claims ON idem.outbox (provider, account, claim_token) WHERE claim_token IS NOT NULL;
-- Its condition is one that no statement about one of these statuses takes for its own: see outbox_due_by_tenant.
CREATE INDEX outbox_too_old ON idem.outbox (start_before, id)
    WHERE '' || status IN ('approval', 'pending', 'waiting', 'unfrozen');
CREATE INDEX outbox_redrives ON idem.outbox (redrive_at, id) WHERE redrive_at IS NOT NULL;
CREATE INDEX outbox_doubted ON idem.outbox (doubted_since, id)
    WHERE doubted_since IS NOT NULL AND status IN ('approval', 'pending', 'waiting', 'unfrozen', 'held');

-- The newest moment that a provider's memory counts from, without those that are marked as not known: one that lies
-- ahead of the clock is at the end of it (outbox/settle/clock_ahead.py). Claims too: one that was made by a clock that was
-- ahead ends when the true clock has passed all of its times.
CREATE INDEX outbox_sent_ahead ON idem.outbox ((greatest(
        nullif(first_sent_at, timestamptz '9999-01-01 00:00+00'), nullif(doubted_since, timestamptz '9999-01-01 00:00+00'),
        nullif(denied_sent_at, timestamptz '9999-01-01 00:00+00'))), id)
    WHERE greatest(
        nullif(first_sent_at, timestamptz '9999-01-01 00:00+00'), nullif(doubted_since, timestamptz '9999-01-01 00:00+00'),
        nullif(denied_sent_at, timestamptz '9999-01-01 00:00+00')) IS NOT NULL;
-- What waits for what by an ordering key: the row before another one; the first that waits of each key (under a condition
-- of its own, as below); what waits without a place; and the oldest that waits.
CREATE INDEX outbox_order ON idem.outbox (tenant_id, ordering_group, ordering_key, ordering_number)
    WHERE ordering_number IS NOT NULL;
CREATE INDEX outbox_waiting ON idem.outbox (tenant_id, ordering_group, ordering_key, ordering_number)
    WHERE status || '' = 'waiting';
CREATE INDEX outbox_without_place ON idem.outbox (status_since, id)
    WHERE ordering_key IS NOT NULL AND ordering_number IS NULL;
CREATE INDEX outbox_waiting_longest ON idem.outbox (status_since) WHERE status = 'waiting';
CREATE INDEX outbox_approval ON idem.outbox (status_since, id) WHERE status = 'approval';
CREATE INDEX outbox_held ON idem.outbox (status_since, id) WHERE status = 'held';
CREATE INDEX outbox_unfrozen ON idem.outbox (available_at) WHERE status = 'unfrozen' AND provider <> 'local';

-- Rows of local steps, which a worker that knows the function takes by its step: the renderer of calls reads none.
CREATE INDEX outbox_local_steps ON idem.outbox (operation, step_name, available_at)
    WHERE status = 'unfrozen' AND provider = 'local';
-- Of flows, whose intents have no reference of their own: which open step an event is about; and the open steps by name,
-- for people.
CREATE INDEX outbox_steps_by_reference ON idem.outbox (provider_reference, provider, account)
    WHERE step_name IS NOT NULL AND provider_reference IS NOT NULL;
CREATE INDEX outbox_steps_by_name ON idem.outbox (step_name, intent_id) WHERE step_name || '' IS NOT NULL;

-- The claim in turns of tenants. Its condition is one that no plan can take for that of outbox_due: with a queue's
-- statistics both are alike, and either read for the other costs a pass over all that waits.
CREATE INDEX outbox_due_by_tenant ON idem.outbox (provider, account, tenant_id, available_at, id)
    WHERE status || '' = 'pending';

-- The same for rows that wait to be rendered, of which a worker takes a few at a time.
CREATE INDEX outbox_unfrozen_by_tenant ON idem.outbox (tenant_id, available_at, id)
    WHERE status || '' = 'unfrozen' AND provider <> 'local';

-- Rows that the database may have forgotten a send of, and that recovery has still to doubt: no daemon claims, settles
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
CREATE INDEX requests_by_intent ON idem.requests (intent_id);
CREATE INDEX requests_by_provider_key ON idem.requests (provider_key);

-- What is known but could not be applied yet (live claim, locked row): storing needs no lock on the outbox row.
-- A row leaves when it is folded or applied; what it said stays in evidence.
-- A proof is stored as it was seen; whether it completes the key is decided when it is applied. So one that is open may
-- come with an answer, or with an interim answer. A hint is stored beside its row like a proof: no claim, retry, redrive
-- or cancel passes it (hazard 53). It proves nothing, so no fold reads it; it goes when the provider has been asked.
CREATE TABLE idem.proofs (
    id              uuid        PRIMARY KEY DEFAULT idem.uuid7(),
    outbox_id       uuid        NOT NULL,
    intent_id       uuid        NOT NULL REFERENCES idem.intents (id),
    step            smallint    NOT NULL DEFAULT 1,
    source          text        COLLATE "C" NOT NULL,
    attempt         integer,
    outcome         text        COLLATE "C" NOT NULL,
    reference       text        COLLATE "C",
    status          text        COLLATE "C",
    fields          jsonb       NOT NULL DEFAULT '{}',
    http_status     smallint,
    answer_status   smallint,
    answer_headers  jsonb,
    answer_body     bytea,
    interim         jsonb,
    stored_at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT proofs_outcome_check CHECK (outcome IN ('succeeded', 'interim', 'refused', 'pending', 'hint')),
    -- The end of a step that is not the last one has no answer.
    CONSTRAINT answer_of_proof_is_whole CHECK (num_nulls(answer_status, answer_headers, answer_body) IN (0, 3))
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX proofs_by_row ON idem.proofs (outbox_id);
CREATE INDEX proofs_by_age ON idem.proofs (stored_at);
CREATE INDEX proofs_by_intent ON idem.proofs (intent_id);
