-- What a later revision does; with a semicolon, a percent sign and quotes that end nothing.
CREATE TABLE idem.next (
    id    uuid  PRIMARY KEY DEFAULT idem.uuid7(),
    said  text  COLLATE "C" NOT NULL DEFAULT 'it''s 100%; more'
);

CREATE OR REPLACE FUNCTION idem.needs_operator(p_intent uuid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Any dead letter; not some.
    RETURN EXISTS (SELECT FROM idem.dead_letters l WHERE l.intent_id = p_intent AND l.resolved_at IS NULL);
END $$;

INSERT INTO idem.next (said) SELECT format('%s;', i.environment) FROM idem.installation i;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA idem FROM PUBLIC;
