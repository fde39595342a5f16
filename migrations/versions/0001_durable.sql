-- Every commit that writes to idem survives a crash of the server, whatever synchronous_commit the session, its role or
-- its database has. `remote_write` and what is stronger stays. It is looked at when the transaction commits: a setting
-- that a function of the caller sets for itself is over by then.
CREATE FUNCTION idem.commit_durably() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN NULL;
END $$;

-- A key that is new or taken up again is what a client is told of: looked at for each one, also where the session turns
-- durability off after the accept. For a new one idem.end_new_key does it.
CREATE CONSTRAINT TRIGGER retried_key_is_durable AFTER UPDATE ON idem.idempotency_keys
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.state <> NEW.state AND NEW.state = 'in_progress')
    EXECUTE FUNCTION idem.commit_durably();

-- Every other write costs a look at the setting, and the function only where it is off. An intent, a row and a request
-- begin beside a new key or an evidence row, in one statement with it: their INSERT needs no trigger of its own, for which
-- PostgreSQL would read the condition again in each accept.
DO $$
DECLARE
    each  record;
BEGIN
    FOR each IN
        SELECT c.relname AS name FROM pg_class c
         WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'r'
           -- Counts and heartbeats, which are written again.
           AND c.relname NOT IN ('alembic_version', 'tenant_usage', 'tenant_keys', 'daemons',
                               'decisions_to_count')
    LOOP
        EXECUTE format($trigger$
            CREATE CONSTRAINT TRIGGER commit_is_durable AFTER %s UPDATE OR DELETE ON idem.%I
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                WHEN (pg_catalog.current_setting('synchronous_commit') IN ('off', 'local'))
                EXECUTE FUNCTION idem.commit_durably()
            $trigger$, CASE WHEN each.name NOT IN ('idempotency_keys', 'intents', 'outbox', 'requests')
                            THEN 'INSERT OR' END, each.name);
    END LOOP;
END $$;
