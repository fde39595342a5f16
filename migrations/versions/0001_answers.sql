-- What is stored as an answer is what HTTP can carry, whoever stores it: it is told again for as long as its key lives.
-- What check_answer (outbox/domain/operation.py) does in Python is done again here; a test holds both against each other.

-- Why HTTP could not carry this answer, or NULL.
CREATE FUNCTION idem.answer_problem(p_status integer, p_headers jsonb, p_body bytea) RETURNS text
LANGUAGE sql IMMUTABLE
    RETURN CASE
        WHEN p_status IS NULL OR p_status NOT BETWEEN 200 AND 499
            THEN format('status %s is not from 200 to 499', coalesce(p_status::text, 'NULL'))
        WHEN p_body IS NULL OR octet_length(p_body) > 8388608
            THEN 'its body is missing or has more than 8388608 bytes'
        WHEN p_status IN (204, 205, 304) AND octet_length(p_body) > 0
            THEN format('it has a body and status %s, which has none', p_status)
        WHEN jsonb_typeof(p_headers) IS DISTINCT FROM 'object'
            THEN 'its headers are not a JSON object of texts'
        ELSE (
            SELECT CASE
                WHEN bool_or(h.unfit)
                    THEN format('HTTP cannot carry its header %s', min(h.name) FILTER (WHERE h.unfit))
                WHEN sum(h.bytes) > 8192
                    THEN 'its headers have more than 8192 bytes' END
              FROM (SELECT to_json(e.key)::text AS name, length(e.key) + length(e.value #>> '{}') AS bytes,
                           jsonb_typeof(e.value) <> 'string'
                           OR (e.key COLLATE "C") !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$'
                           OR ((e.value #>> '{}') COLLATE "C") !~ '^([!-~]([ -~]*[!-~])?)?$' AS unfit
                      FROM jsonb_each(p_headers) AS e) AS h)
        END;

CREATE FUNCTION idem.refuse_answer(p_why text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = 'check_violation', SCHEMA = 'idem',
        MESSAGE = 'idem refuses this answer: ' || p_why,
        DETAIL  = 'An answer is stored once and told again to every retry, so it must be one that HTTP can carry.',
        HINT    = 'Store a status from 200 to 499, headers as a JSON object of texts in visible ASCII, at most 8192 '
                  'bytes of them, and a body, which may be empty. Where your own code failed, raise: the transaction '
                  'is rolled back, the key is free, and the client may send the same request again.';
END $$;

CREATE FUNCTION idem.check_answer() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    why  text;
BEGIN
    IF TG_RELID = 'idem.proofs'::regclass THEN
        why := idem.answer_problem(NEW.answer_status, NEW.answer_headers, NEW.answer_body);
    ELSE
        why := idem.answer_problem(NEW.response_status, NEW.response_headers, NEW.response_body);
    END IF;
    IF why IS NOT NULL THEN
        PERFORM idem.refuse_answer(why);
    END IF;
    RETURN NEW;
END $$;
-- Of most answers one pattern shows that HTTP can carry them: only another one is looked at header by header.
CREATE TRIGGER stored_answer_can_be_sent AFTER UPDATE OF state ON idem.idempotency_keys FOR EACH ROW
    WHEN (OLD.state <> 'completed' AND NEW.state = 'completed'
          AND NOT coalesce(NEW.response_status BETWEEN 200 AND 499 AND NEW.response_status NOT IN (204, 205, 304)
                           AND octet_length(NEW.response_body) <= 8388608 AND length(NEW.response_headers::text) <= 8192
                           AND (NEW.response_headers::text COLLATE "C")
                               ~ '^{("[0-9A-Za-z-]+": "([!#-[\]-~]([ !#-[\]-~]*[!#-[\]-~])?)?"(, |(?=})))*}$', false))
    EXECUTE FUNCTION idem.check_answer();
CREATE TRIGGER proofs_answer_can_be_sent BEFORE INSERT OR UPDATE ON idem.proofs FOR EACH ROW
    WHEN (num_nonnulls(NEW.answer_status, NEW.answer_headers, NEW.answer_body) > 0)
    EXECUTE FUNCTION idem.check_answer();
