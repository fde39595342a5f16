-- Whose row it is, so that the claim can give every tenant its share of a lane. Rows that were there before have an
-- empty tenant and count as one share: to fill them in here would keep the table locked for as long as that takes
-- (IB-160). One that is written again gets its tenant then, the others leave as they are settled.
ALTER TABLE idem.outbox ADD COLUMN tenant_id text COLLATE "C" NOT NULL DEFAULT '';
-- Its condition is one that no plan can take for that of outbox_due: with a queue's statistics both look alike, and
-- either read for the other costs a pass over all that waits.
CREATE INDEX outbox_shares ON idem.outbox (provider, account, tenant_id, available_at, id)
    WHERE status || '' = 'pending';

-- By the key first: accept writes intent and row in one statement, the row before the intent; both after the key.
CREATE FUNCTION idem.name_the_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT k.tenant_id INTO NEW.tenant_id FROM idem.idempotency_keys k WHERE k.intent_id = NEW.intent_id LIMIT 1;
    IF NOT FOUND THEN
        SELECT i.tenant_id INTO NEW.tenant_id FROM idem.intents i WHERE i.id = NEW.intent_id;
    END IF;
    NEW.tenant_id := coalesce(NEW.tenant_id, '');
    RETURN NEW;
END $$;
CREATE TRIGGER outbox_row_has_a_tenant BEFORE INSERT OR UPDATE ON idem.outbox FOR EACH ROW
    WHEN (NEW.tenant_id = '') EXECUTE FUNCTION idem.name_the_tenant();
