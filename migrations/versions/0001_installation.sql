-- This installation, what it is configured for, and what runs for it. Text that is compared or ordered by idem is
-- COLLATE "C", so that a database in any locale gives the same.

CREATE TABLE idem.installation (
    singleton            boolean     PRIMARY KEY DEFAULT true CHECK (singleton),
    environment          text        NOT NULL,
    secret               bytea       NOT NULL CHECK (octet_length(secret) >= 32),
    -- What every accept needs of the secret, made once: both keys of its HMAC, and the seed of the numbers of its locks.
    hmac_inner           bytea       NOT NULL GENERATED ALWAYS AS (idem.hmac_pad(secret, 54)) STORED,
    hmac_outer           bytea       NOT NULL GENERATED ALWAYS AS (idem.hmac_pad(secret, 92)) STORED,
    lock_seed            bigint      NOT NULL GENERATED ALWAYS AS (hashtextextended(encode(secret, 'hex'), 0)) STORED,
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

-- A daemon's id is fresh per start. `tokens` are the claims that it held at its last heartbeat.
CREATE TABLE idem.daemons (
    id            text        COLLATE "C" PRIMARY KEY,
    kind          text        NOT NULL,
    host          text        NOT NULL,
    pid           integer     NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    seen_at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    last_pass_at  timestamptz,
    -- Grows by one with each heartbeat. A number below the one that the daemon remembers shows a restore.
    heartbeats    bigint      NOT NULL DEFAULT 1,
    ended_at      timestamptz,
    ended_how     text        COLLATE "C" CHECK (ended_how IN ('clean', 'reaped')),
    tokens        uuid[]      NOT NULL DEFAULT '{}',
    last_pass     jsonb       NOT NULL DEFAULT '{}'
);

-- Whose account the credentials of a configured account are, as the provider named it at the first start. `seen_*` is
-- what was found last: where it differs, that process does not serve the lane. No daemon may change the first word.
CREATE TABLE idem.account_identities (
    provider       text        COLLATE "C" NOT NULL,
    account        text        COLLATE "C" NOT NULL,
    origin         text        COLLATE "C" NOT NULL,
    identity       text        COLLATE "C" NOT NULL,
    first_seen_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    seen_identity  text        COLLATE "C" NOT NULL,
    seen_at        timestamptz NOT NULL DEFAULT statement_timestamp(),
    seen_by        text        COLLATE "C" NOT NULL,
    PRIMARY KEY (provider, account)
);
