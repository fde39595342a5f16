-- Events and the handlers that run for them: each handler of an event's operation that hears such events, once, in the
-- order of the intent.
--
-- idem.handler_work has a row for each (handler, event) that is still to run. The statement that writes the event writes
-- it, in the same transaction. So nothing is found by a cursor over ids: a transaction that commits late brings its work
-- with it, and the search for work reads that small table alone, however many events there are. The row leaves in the
-- transaction of the handler's own work, together with its mark in idem.handled_events. It is locked while the handler
-- runs, and an event is due only when no earlier event of its intent waits for the same handler.
--
-- idem.event_handlers lists the handlers. A handler gets every event whose transaction began after its registration. One
-- that wants earlier events too is backfilled, page by page. The backfill begins when every transaction has ended that may
-- not have seen the handler (backfill_after). Until it is over, the handler only gets intents that the backfill has
-- passed, so that their order holds. Under REPEATABLE READ and SERIALIZABLE a transaction cannot see a handler that was
-- registered after it began: its events are written for '*' as well, and given to the missing handlers later.
--
-- A completed intent costs one call of a trigger for a whole batch, and one narrow row for each handler.

CREATE TABLE idem.event_handlers (
    name               text         COLLATE "C" PRIMARY KEY,
    operation          text         COLLATE "C" NOT NULL,
    -- Which events it gets: those of an intent that settles, or (`step`) the end of each step of a flow.
    hears              text         COLLATE "C" NOT NULL DEFAULT 'settled',
    registered_at      timestamptz  NOT NULL DEFAULT statement_timestamp(),
    seen_at            timestamptz  NOT NULL DEFAULT statement_timestamp(),
    backfill_after     xid8,
    backfilled_intent  uuid,
    backfilled_number  integer,
    CONSTRAINT handler_name_is_not_a_wildcard CHECK (name <> '*' AND name <> ''),
    CONSTRAINT handler_hears_what_is_known CHECK (hears IN ('settled', 'step')),
    CONSTRAINT backfill_is_whole CHECK ((backfilled_intent IS NULL) = (backfilled_number IS NULL))
);
CREATE INDEX event_handlers_by_operation ON idem.event_handlers (operation);

CREATE TABLE idem.handler_work (
    handler         text        COLLATE "C" NOT NULL,
    intent_id       uuid        NOT NULL,
    number          integer     NOT NULL,
    event_id        uuid        NOT NULL,
    failures        smallint    NOT NULL DEFAULT 0,
    due_at          timestamptz NOT NULL DEFAULT statement_timestamp(),
    created_at      timestamptz NOT NULL DEFAULT statement_timestamp(),
    dead_letter_id  uuid        REFERENCES idem.dead_letters (id),
    PRIMARY KEY (handler, intent_id, number),
    CONSTRAINT stopped_work_is_not_due CHECK (dead_letter_id IS NULL OR due_at = 'infinity')
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX handler_work_due ON idem.handler_work (handler, due_at);
CREATE INDEX handler_work_stopped ON idem.handler_work (dead_letter_id) WHERE dead_letter_id IS NOT NULL;

-- Which events a handler has handled. `skipped`: an operator let the event pass.
CREATE TABLE idem.handled_events (
    event_id    uuid        NOT NULL,
    handler     text        COLLATE "C" NOT NULL,
    handled_at  timestamptz NOT NULL DEFAULT statement_timestamp(),
    skipped     boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (event_id, handler)
);

-- As the owner: an application that writes the event of its own local operation needs no right to any of this.
CREATE FUNCTION idem.queue_handler_work() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- On a table of the caller's own, the caller would choose what handlers are told.
    IF TG_RELID <> 'idem.events'::regclass THEN
        RAISE insufficient_privilege USING MESSAGE = 'idem.queue_handler_work belongs to idem.events alone';
    ELSIF NOT EXISTS (SELECT FROM written)
          OR current_setting('transaction_isolation') = 'read committed'
             AND NOT EXISTS (SELECT FROM idem.event_handlers) THEN
        RETURN NULL;
    END IF;
    INSERT INTO idem.handler_work (handler, intent_id, number, event_id)
    SELECT h.name, w.aggregateid, w.number, w.id
      FROM written w
      JOIN idem.intents i ON i.id = ANY (ARRAY[w.aggregateid])
      JOIN idem.event_handlers h ON h.operation = i.operation AND (h.hears = 'step') = (w.type = 'step');
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        INSERT INTO idem.handler_work (handler, intent_id, number, event_id)
        SELECT '*', w.aggregateid, w.number, w.id FROM written w;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER events_are_given_to_handlers AFTER INSERT ON idem.events
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION idem.queue_handler_work();

-- For an operator whose handler is gone for good: what waits for it is dropped. How many events that were.
CREATE FUNCTION idem.forget_handler(p_name text) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dropped bigint;
BEGIN
    DELETE FROM idem.event_handlers WHERE name = p_name;
    UPDATE idem.dead_letters d
       SET resolved_at = statement_timestamp(), resolution = 'handler_forgotten', resolved_by = current_user
     WHERE d.resolved_at IS NULL
       AND d.id IN (SELECT w.dead_letter_id FROM idem.handler_work w
                     WHERE w.handler = p_name AND w.dead_letter_id IS NOT NULL);
    DELETE FROM idem.handler_work WHERE handler = p_name;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;
