-- Tokens of tenants, what each tenant does with its keys, and which database roles may accept for which tenants.

-- A token is looked up by its hash, and spoken of by its id. `last_used_at` is exact to a day.
CREATE TABLE idem.api_tokens (
    token_sha256    bytea       PRIMARY KEY CHECK (octet_length(token_sha256) = 32),
    id              uuid        NOT NULL DEFAULT idem.uuid7(),
    tenant_id       text        COLLATE "C" NOT NULL,
    label           text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    created_by      text,
    last_used_at    timestamptz,
    revoked_at      timestamptz,
    revoked_by      text        COLLATE "C",
    revoked_reason  text        COLLATE "C",
    CONSTRAINT only_a_revoked_token_says_why
        CHECK (revoked_at IS NOT NULL OR num_nonnulls(revoked_by, revoked_reason) = 0)
);
CREATE UNIQUE INDEX one_token_an_id ON idem.api_tokens (id);

-- Counts of an hour, added up by the API's processes: what a metric with a label for each tenant would say.
CREATE TABLE idem.tenant_usage (
    tenant_id       text        COLLATE "C" NOT NULL,
    hour            timestamptz NOT NULL,
    requests        bigint      NOT NULL DEFAULT 0,
    created         bigint      NOT NULL DEFAULT 0,
    replayed        bigint      NOT NULL DEFAULT 0,
    mismatch        bigint      NOT NULL DEFAULT 0,
    key_missing     bigint      NOT NULL DEFAULT 0,
    key_invalid     bigint      NOT NULL DEFAULT 0,
    suspicious_key  bigint      NOT NULL DEFAULT 0,
    expired_reuse   bigint      NOT NULL DEFAULT 0,
    limited         bigint      NOT NULL DEFAULT 0,
    body_invalid    bigint      NOT NULL DEFAULT 0,
    params_invalid  bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, hour)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX tenant_usage_by_hour ON idem.tenant_usage (hour);

-- How many keys a tenant has that have not expired: `active` of those whose intent is up to `counted_to`; later ones
-- are counted by the index of intents when somebody asks. Only of tenants for which a limit is asked about
-- (`requested_at`). NULL in `counted_at`: not counted whole yet. Below zero: keys expired before they were counted in.
CREATE TABLE idem.tenant_keys (
    tenant_id     text        COLLATE "C" PRIMARY KEY,
    active        bigint      NOT NULL DEFAULT 0,
    counted_to    uuid        NOT NULL DEFAULT idem.first_uuid7(statement_timestamp()),
    counted_at    timestamptz,
    requested_at  timestamptz NOT NULL DEFAULT statement_timestamp()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- What accept decided through the library, inline and by SQL: counted where it is decided, because such an application has
-- no process of idem's. A row for each decision, so that no transaction waits for another; the sweeper adds them up
-- into idem.tenant_usage and its metric, and deletes them. The HTTP API counts its own, in its memory.
CREATE TABLE idem.decisions_to_count (
    id         uuid        PRIMARY KEY DEFAULT idem.uuid7(),
    tenant_id  text        COLLATE "C" NOT NULL,
    operation  text        COLLATE "C" NOT NULL,
    decision   text        COLLATE "C" NOT NULL,
    at         timestamptz NOT NULL DEFAULT statement_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Which database roles may accept for which tenants by SQL alone; tenant '*' is every tenant. A name can come to belong
-- to another role (a new one, a renamed one, that of another cluster), so its number must be right too.
CREATE TABLE idem.producers (
    role        text        COLLATE "C" NOT NULL,
    role_oid    oid         NOT NULL,
    tenant      text        COLLATE "C" NOT NULL,
    granted_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (role, tenant)
);

CREATE FUNCTION idem.may_produce(p_tenant text) RETURNS boolean LANGUAGE sql STABLE
    RETURN pg_has_role(session_user, current_user, 'MEMBER')
        OR EXISTS (SELECT FROM idem.producers p
                    WHERE p.tenant IN (p_tenant, '*') AND pg_get_userbyid(p.role_oid) = p.role
                      AND pg_has_role(session_user, p.role_oid, 'MEMBER'));
