-- The intents, and the keys of the clients that asked for them. Every time of a key, an intent and a row has a year that
-- a client's library can read: one that has not would make every list that shows it fail, for good.

-- The ledger. `state` is never `expired`: the intent outlives its key. `outcome` says what `completed` means.
CREATE TABLE idem.intents (
    id                  uuid        PRIMARY KEY,
    tenant_id           text        COLLATE "C" NOT NULL,
    operation           text        COLLATE "C" NOT NULL,
    idempotency_key     text        COLLATE "C" NOT NULL,
    state               text        COLLATE "C" NOT NULL DEFAULT 'in_progress',
    outcome             text        COLLATE "C",
    -- Of a flow: the number of the last step whose end is in idem.steps; 0: none. The next one is open.
    recovery_point      smallint    NOT NULL DEFAULT 0,
    version             integer     NOT NULL DEFAULT 1,
    provider            text        COLLATE "C",
    account             text        COLLATE "C",
    provider_reference  text        COLLATE "C",
    label               text,
    -- Of a call that may need an approval: who asked for it, as far as that is known. The label of the token, the name that
    -- the application gives, or the role that accepted by SQL.
    asked_by            text,
    -- Whether a person must approve it, as in idem.outbox: of the whole intent, so each step of a flow begins with it.
    approval            text        COLLATE "C",
    params              jsonb       NOT NULL,
    -- Of a flow: all its steps, as they were when it was accepted (outbox/domain/plan.py). NULL: one call alone.
    plan                jsonb,
    result              jsonb,
    -- What a client gets of an `awaiting` row, before the end of the object; gone when the row is.
    interim             jsonb,
    -- NULL where the completion was the end of the object; else what is known of it since: still `open`, or its end.
    object_end          text        COLLATE "C",
    requested_at        timestamptz NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    settled_at          timestamptz,
    -- As whom the call was sent that completed it (outbox.sent_as): what is found of it now shows that the same account
    -- answers.
    sent_as             bigint
);
CREATE INDEX intents_to_ask_about ON idem.intents (provider, account, id)
    WHERE state = 'completed' AND outcome = 'succeeded' AND provider_reference IS NOT NULL;
CREATE INDEX intents_by_tenant ON idem.intents (tenant_id, id);

-- One for each filter of a tenant's list: a page reads what it shows, whatever others, other states or other operations
-- have. Each begins with another column, so that no statistics make the planner take one for another. What is completed is
-- found by operation: each index that an end must write costs every call.
CREATE INDEX intents_not_completed ON idem.intents (state, tenant_id, id) WHERE state <> 'completed';
CREATE INDEX intents_by_operation ON idem.intents (operation, tenant_id, state, id);

-- The ledger check: what succeeded in a time must be on the provider's own list of that time.
CREATE INDEX intents_succeeded ON idem.intents (provider, account, settled_at, id)
    WHERE state = 'completed' AND outcome = 'succeeded';

-- `idem find`, and the same over HTTP for one tenant: by label (its beginning, because an index row has a limit), by the
-- client's key, by the provider's reference (which also says whose an event is, and a listed object), by a provider key of
-- any generation.
CREATE INDEX intents_by_label ON idem.intents (left(label, 200), tenant_id, id) WHERE label IS NOT NULL;
CREATE INDEX intents_by_key ON idem.intents (idempotency_key, id);
CREATE INDEX intents_by_any_reference ON idem.intents (provider_reference, tenant_id, id)
    WHERE provider_reference IS NOT NULL;

-- A key names its intent before there is one (idem.reserve), so that foreign key is checked at COMMIT.
CREATE TABLE idem.idempotency_keys (
    tenant_id                text        COLLATE "C" NOT NULL,
    operation                text        COLLATE "C" NOT NULL,
    idempotency_key          text        COLLATE "C" NOT NULL,
    fingerprint              text        COLLATE "C" NOT NULL,
    state                    text        COLLATE "C" NOT NULL DEFAULT 'in_progress',
    intent_id                uuid        NOT NULL REFERENCES idem.intents (id) DEFERRABLE INITIALLY DEFERRED,
    response_status          smallint,
    response_headers         jsonb,
    response_body            bytea,
    response_schema_version  integer,
    last_error_code          text,
    last_error_message       text,
    -- An expired key of this kind stays, and is refused for good.
    refuse_after_expiry      boolean     NOT NULL DEFAULT false,
    -- True between reserve and submit only, so only in the transaction that reserved: a trigger refuses to commit it.
    reserved                 boolean     NOT NULL DEFAULT false,
    created_at               timestamptz NOT NULL DEFAULT now(),
    completed_at             timestamptz,
    expires_at               timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, operation, idempotency_key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
-- Of all keys: with a condition on their state, the end of a call would have to write each index of the key anew. As it
-- is, it writes none (HOT), if its answer lives no longer than its key.
CREATE INDEX keys_to_expire ON idem.idempotency_keys (expires_at, intent_id);
CREATE INDEX keys_by_intent ON idem.idempotency_keys (intent_id);
