-- Tokens of tenants, and what each tenant does with its keys.

-- The first id that idem.uuid7 can make at a moment: "made since" is a range of ids.
CREATE FUNCTION idem.first_uuid7(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3)
                  || decode('00000000000000000000', 'hex'), 'hex')::uuid;

-- A token is looked up by its hash, and spoken of by its id. `last_used_at` is exact to a day.
ALTER TABLE idem.api_tokens
    ADD COLUMN id              uuid        NOT NULL DEFAULT idem.uuid7(),
    ADD COLUMN created_by      text,
    ADD COLUMN last_used_at    timestamptz,
    ADD COLUMN revoked_by      text        COLLATE "C",
    ADD COLUMN revoked_reason  text        COLLATE "C",
    ADD CONSTRAINT only_a_revoked_token_says_why
        CHECK (revoked_at IS NOT NULL OR num_nonnulls(revoked_by, revoked_reason) = 0);
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
-- (`wanted_at`). NULL in `counted_at`: not counted whole yet. Below zero: keys expired before they were counted in.
CREATE TABLE idem.tenant_keys (
    tenant_id   text        COLLATE "C" PRIMARY KEY,
    active      bigint      NOT NULL DEFAULT 0,
    counted_to  uuid        NOT NULL DEFAULT idem.first_uuid7(statement_timestamp()),
    counted_at  timestamptz,
    wanted_at   timestamptz NOT NULL DEFAULT statement_timestamp()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
