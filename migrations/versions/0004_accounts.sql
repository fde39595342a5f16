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
