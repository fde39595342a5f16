-- The order of intents that have one ordering key. One notion everywhere: a row is blocked while an open row of the same
-- tenant, group and key has a smaller number, or while its key is held. What is blocked is `waiting`.

-- A key whose head is gone without its effect: refused, or left at rest until its key was gone. Nothing of the key is sent
-- until an operator says so (idem intents unblock). A row of the outbox that is open needs no hold: it blocks by itself.
CREATE TABLE idem.order_holds (
    tenant_id       text        COLLATE "C" NOT NULL,
    ordering_group  text        COLLATE "C" NOT NULL,
    ordering_key    text        COLLATE "C" NOT NULL,
    intent_id       uuid        NOT NULL REFERENCES idem.intents (id),
    why             text        COLLATE "C" NOT NULL,
    since           timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (tenant_id, ordering_group, ordering_key),
    CONSTRAINT order_hold_says_why CHECK (why IN ('refused', 'abandoned'))
);
CREATE INDEX order_holds_by_intent ON idem.order_holds (intent_id);
CREATE INDEX order_holds_by_age ON idem.order_holds (since);

-- A number of NULL has no place in the order: such a row waits until the sweeper gives it one, or was taken out. The first
-- row is read in the order of the index: a plan for "is there one before" reads the table where most rows have one key.
CREATE FUNCTION idem.is_blocked(p_tenant text, p_group text, p_key text, p_number bigint) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN p_key IS NOT NULL
       AND (p_number IS NULL
            OR coalesce((SELECT o.ordering_number FROM idem.outbox o
                          WHERE o.tenant_id = p_tenant AND o.ordering_group = p_group AND o.ordering_key = p_key
                            AND o.ordering_number IS NOT NULL
                          ORDER BY o.tenant_id, o.ordering_group, o.ordering_key, o.ordering_number LIMIT 1)
                        < p_number, false)
            OR (SELECT h.intent_id FROM idem.order_holds h
                 WHERE h.tenant_id = p_tenant AND h.ordering_group = p_group AND h.ordering_key = p_key LIMIT 1)
               IS NOT NULL);

-- The advisory lock of an ordering key. Its number needs the installation's secret, like that of an idempotency key.
CREATE FUNCTION idem.order_lock(p_tenant text, p_group text, p_key text) RETURNS bigint LANGUAGE sql STABLE
    RETURN hashtextextended(
               'order' || chr(31) || p_tenant || chr(31) || p_group || chr(31) || p_key,
               coalesce((SELECT i.lock_seed FROM idem.installation i), 0));

-- The next number of a key, for who holds its lock: microseconds of the clock, or one more than the newest open row has,
-- whatever the clock does. The lock is held until the end of the transaction, so the order of the numbers is the order of
-- the commits; and who sees a row sees every open row with a smaller number.
CREATE FUNCTION idem.next_order_number(p_tenant text, p_group text, p_key text) RETURNS bigint LANGUAGE sql VOLATILE
    RETURN greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                    1 + (SELECT o.ordering_number FROM idem.outbox o
                          WHERE o.tenant_id = p_tenant AND o.ordering_group = p_group AND o.ordering_key = p_key
                            AND o.ordering_number IS NOT NULL
                          ORDER BY o.tenant_id DESC, o.ordering_group DESC, o.ordering_key DESC, o.ordering_number DESC
                          LIMIT 1));

-- The place of a new row. Waits for every open transaction that has accepted something of the same key. In a caller's
-- session a bitmap would read every row of the key, if the outbox was empty when it was counted.
CREATE FUNCTION idem.join_order(p_tenant text, p_group text, p_key text, OUT place bigint, OUT blocked boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_bitmapscan = off AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(idem.order_lock(p_tenant, p_group, p_key));
    place := idem.next_order_number(p_tenant, p_group, p_key);
    -- A snapshot that is older than the lock does not show what has committed before: the sweeper asks again.
    blocked := current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')
               OR idem.is_blocked(p_tenant, p_group, p_key, place);
END $$;

-- Takes a row that rests or is asked about out of the order: what waits for it goes on, and if it comes back to work, it
-- gets a new place, behind the others. false: it is not there, or not in such a status.
CREATE FUNCTION idem.leave_order(p_row uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE idem.outbox o SET ordering_number = NULL
     WHERE o.id = p_row AND o.ordering_number IS NOT NULL AND o.status IN ('unknown', 'awaiting', 'held');
    RETURN FOUND;
END $$;

-- Gives rows that came back to work without a place one behind all others; how many. It waits for no lock: while an accept
-- of the same key has not committed, its row keeps waiting.
CREATE FUNCTION idem.enter_order(p_limit integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o       idem.outbox;
    placed  integer := 0;
BEGIN
    FOR o IN SELECT r.* FROM idem.outbox r
              WHERE r.ordering_key IS NOT NULL AND r.ordering_number IS NULL AND r.status = 'waiting'
              ORDER BY r.status_since, r.id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        IF pg_try_advisory_xact_lock(idem.order_lock(o.tenant_id, o.ordering_group, o.ordering_key)) THEN
            UPDATE idem.outbox r
               SET ordering_number = idem.next_order_number(o.tenant_id, o.ordering_group, o.ordering_key)
             WHERE r.id = o.id;
            placed := placed + 1;
        END IF;
    END LOOP;
    RETURN placed;
END $$;

-- No role and no flow brings a blocked row to work.
CREATE FUNCTION idem.refuse_blocked() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET enable_bitmapscan = off AS $$
BEGIN
    IF idem.is_blocked(NEW.tenant_id, NEW.ordering_group, NEW.ordering_key, NEW.ordering_number) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'outbox', CONSTRAINT = 'blocked_row_waits',
            MESSAGE = format('idem refuses this UPDATE of outbox row %s: it is blocked by its ordering key', NEW.id),
            DETAIL  = 'An earlier row of the same tenant, group and ordering key is open, or the key is held.',
            HINT    = 'An operator uses: idem intents blocked, idem intents unblock.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER blocked_row_waits AFTER UPDATE OF status ON idem.outbox FOR EACH ROW
    WHEN (NEW.ordering_key IS NOT NULL AND OLD.status <> NEW.status AND OLD.status IN ('approval', 'waiting', 'held')
          AND NEW.status IN ('pending', 'unfrozen'))
    EXECUTE FUNCTION idem.refuse_blocked();
CREATE TRIGGER order_holds_are_never_truncated BEFORE TRUNCATE ON idem.order_holds
    EXECUTE FUNCTION idem.refuse('a held key goes on when an operator says so');
CREATE TRIGGER order_holds_stay_as_they_are BEFORE UPDATE ON idem.order_holds FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('a held key goes on when an operator says so');
