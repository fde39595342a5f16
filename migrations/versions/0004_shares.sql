-- Whose row it is, so that the claim can give every tenant its share of a lane. Rows that were there before have an
-- empty tenant and count as one share: to fill them in here would keep the table locked for as long as that takes
-- (IB-160). One that is written again gets its tenant then, the others leave as they are settled.
ALTER TABLE idem.outbox ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';
-- Its condition is one that no plan can take for that of outbox_due: with a queue's statistics both look alike, and
-- either read for the other costs a pass over all that waits.
CREATE INDEX outbox_shares ON idem.outbox (provider, account, tenant_id, available_at, id)
    WHERE status || '' = 'pending';
-- The same for rows that wait to be rendered, of which a worker takes a few at a time.
CREATE INDEX outbox_unfrozen_shares ON idem.outbox (tenant_id, available_at, id) WHERE status || '' = 'unfrozen';

-- Whose row a new one is, and that its intent is open: no second call is queued for what has its end.
-- By the key first: accept writes intent and row in one statement, the row before the intent; both after the key.
CREATE FUNCTION idem.name_the_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state  text;
BEGIN
    SELECT k.tenant_id, k.state INTO NEW.tenant_id, state
      FROM idem.idempotency_keys k WHERE k.intent_id = NEW.intent_id LIMIT 1;
    IF NOT FOUND THEN
        SELECT i.tenant_id, i.state INTO NEW.tenant_id, state FROM idem.intents i WHERE i.id = NEW.intent_id;
    END IF;
    NEW.tenant_id := coalesce(NEW.tenant_id, '');
    IF TG_OP = 'INSERT' AND state <> 'in_progress' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'outbox',
            MESSAGE = format('idem refuses this INSERT of outbox: intent %s is %s', NEW.intent_id, state),
            DETAIL  = 'A call is queued for an intent that is in progress alone.',
            HINT    = 'States are written by idem alone; an operator uses: idem dlq, idem intents.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER outbox_row_has_a_tenant BEFORE UPDATE ON idem.outbox FOR EACH ROW
    WHEN (NEW.tenant_id = '') EXECUTE FUNCTION idem.name_the_tenant();
CREATE TRIGGER outbox_row_is_of_an_open_intent BEFORE INSERT ON idem.outbox FOR EACH ROW
    EXECUTE FUNCTION idem.name_the_tenant();
CREATE TRIGGER outbox_row_begins_without_a_past BEFORE INSERT ON idem.outbox FOR EACH ROW
    WHEN (NEW.generation <> 1 OR NEW.attempt <> CASE WHEN NEW.inline THEN 1 ELSE 0 END
          OR NOT NEW.inline AND NEW.first_sent_at IS NOT NULL OR NEW.key_burned OR NEW.cancel_sent)
    EXECUTE FUNCTION idem.refuse('an outbox row begins with nothing sent');

-- What has its end has no row, and gets none.
CREATE FUNCTION idem.refuse_completed_with_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM idem.outbox o WHERE o.intent_id = NEW.id) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation', SCHEMA = 'idem', TABLE = 'intents',
            MESSAGE = format('idem refuses this INSERT of intents: %s begins completed', NEW.id),
            DETAIL  = 'An intent that begins completed has no row of the outbox: nothing is called for it.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER intent_begins_in_progress BEFORE INSERT ON idem.intents FOR EACH ROW
    WHEN (NEW.state NOT IN ('in_progress', 'completed'))
    EXECUTE FUNCTION idem.refuse('an intent begins in progress');
CREATE TRIGGER completed_intent_has_no_row BEFORE INSERT ON idem.intents FOR EACH ROW
    WHEN (NEW.state = 'completed') EXECUTE FUNCTION idem.refuse_completed_with_row();

-- Evidence says who wrote it: the role that logged in, which nobody chooses.
CREATE TRIGGER evidence_names_its_writer BEFORE INSERT ON idem.evidence FOR EACH ROW
    WHEN (NEW.database_role <> session_user)
    EXECUTE FUNCTION idem.refuse('evidence names the database role that wrote it');
