-- The ends of the steps of flows: what each has come to, and what later steps and the answer are made of. An operation of
-- one call has none here: its end is in its intent.
CREATE TABLE idem.steps (
    intent_id           uuid        NOT NULL REFERENCES idem.intents (id),
    step                smallint    NOT NULL,
    outbox_id           uuid        NOT NULL,
    name                text        COLLATE "C" NOT NULL,
    outcome             text        COLLATE "C" NOT NULL,
    -- Of a compensation: the number of the step that it undoes.
    undoes              smallint,
    -- Of a step that calls a provider.
    provider            text        COLLATE "C",
    account             text        COLLATE "C",
    provider_reference  text        COLLATE "C",
    provider_status     text        COLLATE "C",
    sent_as             bigint,
    -- As intents.object_end: NULL where the end of the step was the end of the object.
    object_end          text        COLLATE "C",
    fields              jsonb       NOT NULL DEFAULT '{}',
    ended_at            timestamptz NOT NULL DEFAULT statement_timestamp(),
    PRIMARY KEY (intent_id, step),
    CONSTRAINT step_outcome_is_known CHECK (outcome IN ('succeeded', 'refused', 'skipped', 'cancelled')),
    CONSTRAINT step_object_end_is_known CHECK (object_end IN ('open', 'succeeded', 'refused')),
    CONSTRAINT only_what_exists_ends_later CHECK (object_end IS NULL OR outcome = 'succeeded'),
    CONSTRAINT step_undoes_an_earlier_one CHECK (undoes BETWEEN 1 AND step - 1)
);
CREATE UNIQUE INDEX steps_by_row ON idem.steps (outbox_id);
CREATE INDEX steps_by_reference ON idem.steps (provider, account, provider_reference)
    WHERE provider_reference IS NOT NULL;
-- `idem find`, and the same over HTTP.
CREATE INDEX steps_by_any_reference ON idem.steps (provider_reference, intent_id) WHERE provider_reference IS NOT NULL;
-- As intents_to_ask_about and intents_succeeded: what must be found at the provider, and be on its own list.
CREATE INDEX steps_to_ask_about ON idem.steps (provider, account, outbox_id)
    WHERE outcome = 'succeeded' AND provider_reference IS NOT NULL;
CREATE INDEX steps_succeeded ON idem.steps (provider, account, ended_at, outbox_id) WHERE outcome = 'succeeded';

-- As of an intent of one call: an event that came before our own knowledge of the reference is due when that is written.
CREATE TRIGGER end_wakes_unmatched_events AFTER INSERT ON idem.steps
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION idem.wake_unmatched_events();

-- Of the open row of a step, which few UPDATEs give a reference.
CREATE FUNCTION idem.wake_events_of_step() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE idem.webhook_events w SET retry_at = statement_timestamp()
     WHERE w.id = ANY (ARRAY(
               SELECT e.id FROM idem.webhook_events e
                WHERE e.fate IN ('unmatched', 'foreign') AND e.provider = NEW.provider AND e.account = NEW.account
                  AND e.reference = NEW.provider_reference
                  FOR UPDATE SKIP LOCKED));
    RETURN NULL;
END $$;
CREATE TRIGGER step_wakes_unmatched_events AFTER UPDATE OF provider_reference ON idem.outbox FOR EACH ROW
    WHEN (NEW.step_name IS NOT NULL AND NEW.provider_reference IS NOT NULL
          AND NEW.provider_reference IS DISTINCT FROM OLD.provider_reference)
    EXECUTE FUNCTION idem.wake_events_of_step();

-- What a provider says later of the object is in object_end alone.
CREATE TRIGGER end_of_a_step_stays BEFORE UPDATE ON idem.steps FOR EACH ROW
    WHEN (to_jsonb(OLD) - 'object_end' <> to_jsonb(NEW) - 'object_end')
    EXECUTE FUNCTION idem.refuse('the end of a step is written once');
CREATE TRIGGER step_ends_now BEFORE INSERT ON idem.steps FOR EACH ROW
    WHEN (NEW.ended_at <> statement_timestamp())
    EXECUTE FUNCTION idem.refuse_unless_owner('the end of a step has the time of the statement that writes it');
CREATE TRIGGER ends_of_steps_are_kept BEFORE DELETE ON idem.steps FOR EACH ROW
    EXECUTE FUNCTION idem.refuse('the ends of steps are part of the ledger');
CREATE TRIGGER steps_are_never_truncated BEFORE TRUNCATE ON idem.steps
    EXECUTE FUNCTION idem.refuse('the ends of steps are part of the ledger');

-- The ends of an intent's steps, for who decides about its open row; NULL: it has none.
CREATE FUNCTION idem.step_ends(p_intent uuid) RETURNS jsonb LANGUAGE sql STABLE
    RETURN (SELECT jsonb_agg(jsonb_build_object(
                       'number', s.step, 'name', s.name, 'outcome', s.outcome, 'undoes', s.undoes,
                       'reference', s.provider_reference, 'status', s.provider_status, 'fields', s.fields)
                       ORDER BY s.step)
              FROM idem.steps s WHERE s.intent_id = p_intent);

-- The row of an intent's next step, in the statement that records the end of the one before: as the owner, because no role
-- inserts rows of the outbox. What it calls is in the plan that accept wrote, and its key is the derived one. What lost
-- commits may have done of the step before (p_doubted_since), they may have done of this one too. Its place in the order
-- is that of the row before; where that was taken out, it waits for a new one. An approval is of the whole intent, so a
-- step after one that was done without it (by lost commits, or by an operator's word) asks for it too; what is undone
-- needs none. p_held: it begins at rest, because only an operator may bring it to work.
CREATE FUNCTION idem.begin_step(
    p_intent uuid, p_step integer, p_patience interval, p_traceparent text, p_source text, p_doubted_since timestamptz,
    p_ordering_group text, p_ordering_key text, p_ordering_number bigint, p_refusal_holds boolean,
    p_held boolean
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    row_id  uuid := idem.uuid7();
    n       idem.intents;
    s       record;
    asks    text;
    begins  text;
BEGIN
    SELECT * INTO n FROM idem.intents WHERE id = p_intent;
    SELECT e.* INTO s FROM jsonb_to_record(n.plan -> (p_step - 1)) AS e (
               name text, kind text, provider text, account text, origin text, replay_window integer, marks_start boolean,
               undoes integer);
    IF s.name IS NULL OR p_step < 2
       OR NOT EXISTS (SELECT FROM idem.steps d WHERE d.intent_id = p_intent AND d.step < p_step)
       OR EXISTS (SELECT FROM idem.steps d WHERE d.intent_id = p_intent AND d.step >= p_step) THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'outbox',
            MESSAGE = format('idem refuses step %s of intent %s', p_step, p_intent),
            DETAIL  = 'A step of its plan begins when an earlier one has ended, and once.',
            HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
    END IF;
    asks := CASE WHEN s.undoes IS NULL AND n.approval <> 'given' THEN n.approval END;
    begins := CASE WHEN p_held THEN 'held' WHEN asks IN ('wanted', 'wanted_of_another') THEN 'approval'
                   WHEN p_ordering_key IS NOT NULL AND p_ordering_number IS NULL THEN 'waiting' ELSE 'unfrozen' END;
    INSERT INTO idem.outbox (id, intent_id, step, step_name, status, status_since, available_at, start_before, operation,
                             provider, account, origin, provider_key, replay_window, marks_start, traceparent,
                             doubted_since, ordering_group, ordering_key, ordering_number, refusal_holds, approval)
    SELECT row_id, n.id, p_step, s.name, begins, statement_timestamp(), statement_timestamp(),
           statement_timestamp() + p_patience, n.operation, s.provider, s.account, s.origin,
           idem.provider_key(i.hmac_inner, i.hmac_outer, n.tenant_id, n.operation, n.idempotency_key, p_step, 1), s.replay_window,
           s.marks_start, p_traceparent, p_doubted_since, p_ordering_group, p_ordering_key, p_ordering_number,
           p_refusal_holds, asks
      FROM idem.installation i;
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, to_status)
    VALUES (n.id, row_id, p_step, 0, p_source, 'begun', begins);
    RETURN row_id;
END $$;
