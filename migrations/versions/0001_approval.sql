-- The approval of a call before it is sent. It is given here and nowhere else: a trigger refuses it to every role of a
-- program, and a CHECK keeps what is not approved out of every queue from which a call is sent (0001_outbox.sql).

-- Whether two names mean one person: `ada` is `Ada@laptop`, because the host in an operator's name says nothing about who
-- sits there.
CREATE FUNCTION idem.same_person(p_one text, p_other text) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN lower(btrim(split_part(p_one, '@', 1))) = lower(btrim(split_part(p_other, '@', 1)));

-- Approve the call of an intent at this version, in the caller's transaction; the status that its row has then. As the
-- owner: a role needs the right to call this, and no right on the table gives the same.
CREATE FUNCTION idem.approve(
    p_intent uuid, p_version integer, p_by text, p_reason text, p_patience interval DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    o     idem.outbox;
    n     idem.intents;
    why   text;
    goes  text;
BEGIN
    PERFORM idem.refuse_far_time('p_patience', p_patience);
    SELECT * INTO o FROM idem.outbox WHERE intent_id = p_intent FOR UPDATE;
    -- An intent that has ended must not be waited for: its lock comes after that of its row.
    IF o.status = 'approval' THEN
        SELECT * INTO n FROM idem.intents WHERE id = p_intent FOR NO KEY UPDATE;
    END IF;
    why := CASE
        WHEN coalesce(btrim(p_by), '') = '' OR coalesce(btrim(p_reason), '') = ''
            THEN 'say who approves it, and why'
        WHEN o.status IS DISTINCT FROM 'approval'
            THEN format('it does not wait for an approval (its row is %s)', coalesce(o.status, 'gone'))
        WHEN n.version IS DISTINCT FROM p_version
            THEN format('it changed after you read it (version %s, not %s)', n.version, p_version)
        WHEN EXISTS (SELECT FROM idem.proofs p WHERE p.outbox_id = o.id)
            THEN 'a proof or an event about it is not applied yet'
        WHEN EXISTS (SELECT FROM idem.doubts d WHERE d.outbox_id = o.id)
             OR o.doubted_since IS NOT NULL
                AND idem.memory_left(NULL, o.doubted_since, o.replay_window, NULL) > 0 IS NOT TRUE
            THEN 'lost commits may have sent it, and the provider may not remember that'
        WHEN o.start_before <= statement_timestamp()
            THEN 'its time to start has passed: the client must ask again'
        WHEN o.approval = 'wanted_of_another' AND n.asked_by IS NULL
            THEN 'it wants the approval of another person than the one who asked, and who asked is not on record'
        WHEN o.approval = 'wanted_of_another'
             AND (idem.same_person(p_by, n.asked_by) OR idem.same_person(session_user::text, n.asked_by))
            THEN format('%s asked for it, and the operation wants the approval of another person', n.asked_by) END;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state', SCHEMA = 'idem', TABLE = 'outbox',
            MESSAGE = format('idem does not approve intent %s: %s', p_intent, why),
            DETAIL  = 'Nothing was written.',
            HINT    = 'idem intents show ID shows what it is now.';
    END IF;
    o.approval := 'given';
    goes := idem.next_status(o);
    UPDATE idem.outbox
       SET approval = 'given', status = goes, status_since = statement_timestamp(),
           available_at = CASE WHEN o.key_burned THEN greatest(o.quiet_after, statement_timestamp())
                               ELSE statement_timestamp() END,
           -- It may have waited until the end of its time: the call has its time from now on.
           start_before = greatest(start_before, statement_timestamp() + p_patience)
     WHERE id = o.id;
    UPDATE idem.intents SET version = version + 1, approval = 'given' WHERE id = p_intent;
    INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, from_state, to_state, from_status,
                               to_status, details)
    VALUES (p_intent, o.id, o.step, o.attempt, 'operator', 'approved', n.state, n.state, 'approval', goes,
            jsonb_strip_nulls(jsonb_build_object('by', p_by, 'reason', p_reason, 'version', n.version, 'asked_by',
                                                 n.asked_by)));
    RETURN goes;
END $$;
