-- Lanes: what is paused of one, who paused it, and how much of one is free.

-- What is paused of a lane: its calls with replays and cancels (`paused`), its look-ups, its accept. An empty account
-- means all accounts of the provider.
CREATE TABLE idem.lanes (
    provider       text        COLLATE "C" NOT NULL,
    account        text        COLLATE "C" NOT NULL,
    paused         boolean     NOT NULL DEFAULT false,
    lookups_paused boolean     NOT NULL DEFAULT false,
    accept_paused  boolean     NOT NULL DEFAULT false,
    paused_by      text,
    reason         text,
    changed_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (provider, account)
);

-- Who paused and resumed what, and why: one row for each thing that changed, kept as long as evidence.
CREATE TABLE idem.lane_changes (
    id             uuid        PRIMARY KEY DEFAULT idem.uuid7(),
    provider       text        COLLATE "C" NOT NULL,
    account        text        COLLATE "C" NOT NULL,
    what           text        COLLATE "C" NOT NULL,
    paused         boolean     NOT NULL,
    changed_by     text        COLLATE "C" NOT NULL,
    reason         text        COLLATE "C" NOT NULL,
    database_role  text        NOT NULL DEFAULT current_user,
    changed_at     timestamptz NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT what_can_be_paused CHECK (what IN ('calls', 'lookups', 'accept')),
    CONSTRAINT a_change_says_why CHECK (changed_by <> '' AND reason <> '')
);
CREATE INDEX lane_changes_by_lane ON idem.lane_changes (provider, account, what, id);
CREATE TRIGGER lane_change_is_of_now BEFORE INSERT ON idem.lane_changes FOR EACH ROW
    WHEN (NEW.changed_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_unless_owner('a change of a lane has the time of the statement that writes it');
CREATE TRIGGER lane_changes_are_never_changed BEFORE UPDATE ON idem.lane_changes FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('who paused a lane, and why, is append-only');
CREATE TRIGGER lane_changes_are_kept BEFORE DELETE ON idem.lane_changes FOR EACH ROW
    EXECUTE FUNCTION idem.keep_until_retention('changed_at');
CREATE TRIGGER lane_changes_are_never_truncated BEFORE TRUNCATE ON idem.lane_changes
    EXECUTE FUNCTION idem.refuse('who paused a lane, and why, is append-only');

-- A new intent of a provider whose accept is paused (idem.begin_row asks), and a call that the caller makes while its calls
-- are. A retry of a known key inserts nothing, so it is answered as ever.
CREATE FUNCTION idem.refuse_paused(p_provider text, p_account text, p_inline boolean, p_new boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pause  idem.lanes;
BEGIN
    SELECT * INTO pause FROM idem.lanes l
     WHERE l.provider = p_provider AND l.account IN (p_account, '')
       AND (l.accept_paused AND p_new OR l.paused AND p_inline)
     ORDER BY l.account LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'ID503', SCHEMA = 'idem', TABLE = 'lanes',
            MESSAGE = format('%s of provider %s, account %s is paused, by %s: %s; nothing was written, nothing was sent',
                             CASE WHEN pause.accept_paused AND p_new THEN 'accept' ELSE 'calling' END,
                             p_provider, p_account, coalesce(pause.paused_by, 'somebody'),
                             coalesce(pause.reason, 'no reason given')),
            HINT    = 'Send the same request with the same key again later; an operator ends it: idem resume '
                      || p_provider;
    END IF;
END $$;
CREATE FUNCTION idem.refuse_paused_call() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- On a table of the caller's own, a comparison with NEW would run the caller's casts as the owner.
    IF TG_RELID <> 'idem.outbox'::regclass THEN
        RAISE insufficient_privilege USING MESSAGE = 'idem.refuse_paused_call belongs to idem.outbox alone';
    END IF;
    PERFORM idem.refuse_paused(NEW.provider, NEW.account, NEW.inline, false);
    RETURN NEW;
END $$;
CREATE TRIGGER inline_calls_may_be_paused AFTER UPDATE OF status ON idem.outbox FOR EACH ROW
    WHEN (NEW.inline AND OLD.status <> 'claimed' AND NEW.status = 'claimed')
    EXECUTE FUNCTION idem.refuse_paused_call();

-- How many rows of a lane may be claimed now, `wanted` at the most: what the concurrency of the fleet leaves. Who asks has
-- `asking` of it and no more; who sends leaves that much free while something is due to be asked about, or sends that
-- never stop would let a replay window pass. A lease that is over counts for nothing: no call is made under it.
-- A lane of one call at a time has no part to keep free. It keeps all of it for what has been due for 30 s, while a
-- reconciler lives that could ask. What is due for ten minutes for all that may be a row that no daemon asks about, its
-- operation being gone: sends and questions take turns of ten seconds then, so that neither ever stops.
CREATE FUNCTION idem.lane_capacity(
    p_provider text, p_account text, p_concurrency integer, p_asking integer, p_asks boolean, p_wanted integer
) RETURNS integer
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held   integer;
    asks   integer;
    due    integer;
    alone  boolean := p_concurrency = 1;
BEGIN
    IF p_concurrency IS NULL THEN
        RETURN p_wanted;
    END IF;
    SELECT count(*), count(*) FILTER (WHERE o.status <> 'claimed') INTO held, asks
      FROM idem.outbox o
     WHERE o.provider = p_provider AND o.account = p_account AND o.claim_token IS NOT NULL
       AND o.claimed_until > statement_timestamp();
    IF p_asks THEN
        RETURN greatest(0, least(p_wanted, p_asking - asks, p_concurrency - held));
    END IF;
    IF held >= p_concurrency THEN
        RETURN 0;
    END IF;
    -- What a claim of the reconciler gets, but for what only a process knows: the operations that it serves.
    SELECT count(*) INTO due FROM (
        SELECT FROM idem.outbox o
         WHERE o.provider = p_provider AND o.account = p_account AND o.status IN ('unknown', 'awaiting')
           AND o.available_at <= statement_timestamp() - CASE WHEN alone THEN interval '30 s' ELSE interval '0' END
           AND (o.claim_token IS NULL OR o.claimed_until <= statement_timestamp())
           AND o.available_at > CASE WHEN alone AND floor(extract(epoch FROM statement_timestamp()) / 10) % 2 = 1
                                     THEN statement_timestamp() - interval '10 min' ELSE '-infinity' END
           AND coalesce((SELECT p.id FROM idem.proofs p WHERE p.outbox_id = o.id AND p.outcome <> 'hint' LIMIT 1)
                        IS NULL, false)
           AND (SELECT b.outbox_id FROM idem.doubts b WHERE b.outbox_id = o.id LIMIT 1) IS NULL
           AND NOT EXISTS (SELECT FROM idem.lanes l WHERE l.provider = p_provider AND l.account IN (p_account, '')
                              AND l.lookups_paused)
         ORDER BY o.available_at, o.id
         LIMIT CASE WHEN alone THEN 1 ELSE greatest(0, least(p_asking, p_concurrency - 1) - asks) END) AS d;
    IF alone AND due > 0 AND NOT EXISTS (
        SELECT FROM idem.daemons d
         WHERE d.kind = 'reconciler' AND d.ended_at IS NULL AND d.seen_at > statement_timestamp() - interval '30 s')
    THEN
        due := 0;
    END IF;
    RETURN greatest(0, least(p_wanted, p_concurrency - held - due));
END $$;

-- The same for a lane whose limit is exact: it takes turns, in the statement that claims. The lock ends with that
-- statement, and no process that is frozen after it was sent holds up the others. VOLATILE, so that what is counted
-- after the wait is what the last holder of the lock has claimed.
CREATE FUNCTION idem.lane_capacity_locked(
    p_provider text, p_account text, p_concurrency integer, p_asking integer, p_asks boolean, p_wanted integer
) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    room integer;
BEGIN
    PERFORM FROM idem.lanes l WHERE l.provider = p_provider AND l.account = p_account FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        INSERT INTO idem.lanes (provider, account) VALUES (p_provider, p_account) ON CONFLICT DO NOTHING;
        PERFORM FROM idem.lanes l WHERE l.provider = p_provider AND l.account = p_account FOR NO KEY UPDATE;
    END IF;
    SELECT idem.lane_capacity(p_provider, p_account, p_concurrency, p_asking, p_asks, p_wanted) INTO room;
    RETURN room;
END $$;
