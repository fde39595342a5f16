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

-- By the names of the metric. A session that may write nothing is told the decision all the same. Where a key was
-- accepted with a fingerprint that leaves out other members, its caller composes the request anew and asks again: that
-- the first one does not match says nothing. What is at rest and stays there was not decided.
CREATE FUNCTION idem.count_decision(p_tenant text, p_operation text, p_fingerprint text, d idem.decision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_read_only') = 'on' OR d.decision IN ('limited', 'failed_retryable') THEN
        RETURN;
    END IF;
    IF d.decision = 'mismatch' AND idem.left_out(d.fingerprint) <> idem.left_out(p_fingerprint) THEN
        RETURN;
    END IF;
    INSERT INTO idem.decisions_to_count (tenant_id, operation, decision)
    VALUES (p_tenant, p_operation,
            CASE WHEN d.decision IN ('accepted', 'reserved', 'begun')              THEN 'created'
                 WHEN d.decision = 'begun_again'                                   THEN 'retrying'
                 WHEN d.decision = 'in_progress' AND d.step = 'awaiting'           THEN 'awaiting'
                 ELSE d.decision END);
END $$;

ALTER FUNCTION idem.reserve(text, text, text, text, interval, interval, boolean, boolean, text, text)
    RENAME TO reserve_uncounted;
CREATE FUNCTION idem.reserve(
    p_tenant text, p_operation text, p_key text, p_fingerprint text,
    p_key_ttl interval, p_patience interval, p_refuse_after_expiry boolean, p_may_create boolean DEFAULT true,
    p_provider text DEFAULT NULL, p_account text DEFAULT NULL, p_count boolean DEFAULT true
) RETURNS idem.decision LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d  idem.decision := idem.reserve_uncounted(
           p_tenant, p_operation, p_key, p_fingerprint, p_key_ttl, p_patience, p_refuse_after_expiry, p_may_create,
           p_provider, p_account);
BEGIN
    IF p_count THEN
        PERFORM idem.count_decision(p_tenant, p_operation, p_fingerprint, d);
    END IF;
    RETURN d;
END $$;

ALTER FUNCTION idem.accept(
    text, text, text, text, jsonb, text, text, text, text, uuid, text, text, jsonb, bytea, interval, interval, integer,
    boolean, text, boolean, boolean) RENAME TO accept_under_key;
-- `accept_under_key` takes the provider key that its caller names: what the system before has sent a call under. It is
-- for the import, which only a daemon's role may do. For everybody else the key is the derived one.
CREATE FUNCTION idem.accept(
    p_tenant text, p_operation text, p_key text, p_fingerprint text, p_params jsonb, p_label text,
    p_provider text, p_account text, p_origin text, p_provider_key uuid,
    p_method text, p_path text, p_headers jsonb, p_body bytea,
    p_key_ttl interval, p_patience interval, p_replay_window integer, p_marks_start boolean, p_traceparent text,
    p_may_create boolean DEFAULT true, p_refuse_after_expiry boolean DEFAULT false, p_count boolean DEFAULT true
) RETURNS idem.decision LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d  idem.decision := idem.accept_under_key(
           p_tenant, p_operation, p_key, p_fingerprint, p_params, p_label, p_provider, p_account, p_origin,
           p_provider_key, p_method, p_path, p_headers, p_body, p_key_ttl, p_patience, p_replay_window, p_marks_start,
           p_traceparent, p_may_create, p_refuse_after_expiry);
BEGIN
    IF d.decision = 'accepted' THEN
        PERFORM idem.refuse_other_key(p_tenant, p_operation, p_key, p_provider_key);
    END IF;
    IF p_count THEN
        PERFORM idem.count_decision(p_tenant, p_operation, p_fingerprint, d);
    END IF;
    RETURN d;
END $$;
