-- JSON in its canonical form (JCS, RFC 8785), by no extension. outbox/values/canonical.py does the same in Python, and tests
-- compare both. Literals with a backslash are written E'': they mean the same whatever
-- standard_conforming_strings is.

CREATE FUNCTION idem.refuse_params(p_why text, p_at text, p_hint text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
        MESSAGE = format('idem refuses these params: %s (at %s)', p_why, coalesce(nullif(p_at, ''), 'the top')),
        HINT = coalesce(p_hint, 'Nothing was written. Correct the params and send them with the same key.');
END $$;

-- The digits of a number between its first and its last that is not 0, and where its point is: 0.digits * 10^point.
-- NULL for an exponent that nothing can hold; no digits for zero.
CREATE FUNCTION idem.significant_digits(p_number text, OUT digits text, OUT point bigint)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part   text[] := regexp_match(p_number, '^-?([0-9]+)(?:[.]([0-9]+))?(?:[eE]([-+]?)0*([0-9]*))?$');
    whole  text   := part[1];
BEGIN
    IF length(part[4]) > 18 THEN
        RETURN;
    END IF;
    digits := ltrim(whole || coalesce(part[2], ''), '0');
    point := length(whole) - (length(whole) + coalesce(length(part[2]), 0) - length(digits))
             + coalesce((part[3] || nullif(part[4], ''))::bigint, 0);
    digits := rtrim(digits, '0');
END $$;

-- extra_float_digits makes a double's text its shortest.
CREATE FUNCTION idem.jcs_number(p_number text, p_at text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    too_big  CONSTANT text := 'a whole number outside ±9007199254740991 (2^53-1) is not exact everywhere';
    inexact  CONSTANT text := 'a number that a double does not hold exactly';
    as_text  CONSTANT text := 'Send it as a string.';
    given    record;
    double   float8;
    shown    text;
BEGIN
    IF length(p_number) > 1000 THEN
        RETURN idem.refuse_params('a number of more than 1000 characters', p_at, as_text);
    ELSIF p_number !~ '[.eE]' THEN
        IF length(p_number) > 17 OR abs(p_number::bigint) > 9007199254740991 THEN
            RETURN idem.refuse_params(too_big, p_at, as_text);
        END IF;
        RETURN p_number::bigint::text;
    END IF;
    SELECT * INTO given FROM idem.significant_digits(p_number);
    IF given.digits = '' THEN
        RETURN '0';
    END IF;
    -- Beyond these no double is meant, and PostgreSQL would raise an error of its own.
    IF given.digits IS NULL OR length(given.digits) > 17 OR given.point < -322 AND (given.digits, given.point) <> ('5', -323)
    THEN
        RETURN idem.refuse_params(inexact, p_at, as_text);
    ELSIF given.point > 16 THEN
        RETURN idem.refuse_params(too_big, p_at, as_text);
    END IF;
    double := (given.digits || 'e' || given.point - length(given.digits))::float8;
    IF (given.digits, given.point)
       IS DISTINCT FROM (SELECT (s.digits, s.point) FROM idem.significant_digits(double::text) AS s)
    THEN
        RETURN idem.refuse_params(inexact, p_at, as_text);
    ELSIF double > 9007199254740991 THEN
        RETURN idem.refuse_params(too_big, p_at, as_text);
    END IF;
    shown := CASE
        WHEN given.point >= length(given.digits)
            THEN given.digits || repeat('0', given.point::integer - length(given.digits))
        WHEN given.point > 0
            THEN substr(given.digits, 1, given.point::integer) || '.' || substr(given.digits, given.point::integer + 1)
        WHEN given.point > -6
            THEN '0.' || repeat('0', -given.point::integer) || given.digits
        ELSE concat_ws('.', substr(given.digits, 1, 1), nullif(substr(given.digits, 2), '')) || 'e-' || 1 - given.point
        END;
    RETURN CASE WHEN p_number LIKE '-%' THEN '-' ELSE '' END || shown;
END $$;

-- A text whose order by bytes (UTF-8) is the order of the name's UTF-16 code units: there the characters beyond U+FFFF,
-- which are written with surrogates, come before those from U+E000 on.
CREATE FUNCTION idem.utf16_sort_key(p_name text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN (p_name COLLATE "C") ~ E'[\\uE000-\\U0010FFFF]'
        THEN regexp_replace(
                 regexp_replace(p_name COLLATE "C", E'([\\uE000-\\uFFFF])', chr(57345) || E'\\1', 'g'),
                 E'([\\U00010000-\\U0010FFFF])', chr(57344) || E'\\1', 'g')
        ELSE p_name END;

-- The JSON pointer of a member, for a refusal. A long name is cut: the place is written for every value below it.
CREATE FUNCTION idem.jcs_pointer(p_at text, p_name text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN p_at || '/' || replace(replace(left(p_name, 60), '~', '~0'), '/', '~1')
           || CASE WHEN length(p_name) > 60 THEN '…' ELSE '' END;

-- p_plain: each string, name and number in it is written in its canonical form already, and only the order of members and
-- the space between them are not.
CREATE FUNCTION idem.jcs_value(p_value json, p_at text, p_depth integer, p_plain boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    members  bigint;
    names    bigint;
    inside   text;
    twice    text;
BEGIN
    CASE json_typeof(p_value)
    WHEN 'object', 'array' THEN
        IF p_depth >= 64 THEN
            RETURN idem.refuse_params('nested deeper than 64', p_at);
        END IF;
    WHEN 'string' THEN
        RETURN to_json(p_value #>> '{}')::text;
    WHEN 'number' THEN
        RETURN idem.jcs_number(btrim(p_value::text, E' \t\n\r'), p_at);
    ELSE
        RETURN btrim(p_value::text, E' \t\n\r');
    END CASE;
    IF json_typeof(p_value) = 'array' THEN
        SELECT string_agg(CASE WHEN p_plain AND left(i.value::text, 1) NOT IN ('{', '[') THEN i.value::text
                               ELSE idem.jcs_value(i.value, p_at || '/' || i.place - 1, p_depth + 1, p_plain) END,
                          ',' ORDER BY i.place)
          INTO inside FROM json_array_elements(p_value) WITH ORDINALITY AS i (value, place);
        RETURN '[' || coalesce(inside, '') || ']';
    ELSIF p_plain THEN
        SELECT count(*), count(DISTINCT m.key COLLATE "C"),
               string_agg('"' || m.key || '":' || CASE
                              WHEN left(m.value::text, 1) NOT IN ('{', '[') THEN m.value::text
                              ELSE idem.jcs_value(m.value, idem.jcs_pointer(p_at, m.key), p_depth + 1, true) END,
                          ',' ORDER BY m.key COLLATE "C")
          INTO members, names, inside FROM json_each(p_value) AS m;
    ELSE
        SELECT count(*), count(DISTINCT m.key COLLATE "C"),
               string_agg(to_json(m.key)::text || ':'
                          || idem.jcs_value(m.value, idem.jcs_pointer(p_at, m.key), p_depth + 1),
                          ',' ORDER BY idem.utf16_sort_key(m.key) COLLATE "C")
          INTO members, names, inside FROM json_each(p_value) AS m;
    END IF;
    IF members <> names THEN
        SELECT m.key INTO twice FROM json_each(p_value) AS m GROUP BY m.key COLLATE "C", m.key HAVING count(*) > 1
         LIMIT 1;
        RETURN idem.refuse_params('a member appears twice', idem.jcs_pointer(p_at, twice));
    END IF;
    RETURN '{' || coalesce(inside, '') || '}';
END $$;

-- The canonical form (JCS, RFC 8785) of JSON that is held exactly. Takes json, because jsonb would have lost what is
-- refused here.
CREATE FUNCTION idem.jcs(p_value json) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    written  text := p_value::text;
    outside  text;
BEGIN
    IF getdatabaseencoding() <> 'UTF8' THEN
        RETURN idem.refuse_params('the encoding of this database is ' || getdatabaseencoding(), '',
                                  'JSON is UTF-8: accept by SQL needs a database in UTF8.');
    ELSIF octet_length(written) > 1048576 THEN
        RETURN idem.refuse_params(format('they have %s bytes, more than 1048576', octet_length(written)), '');
    END IF;
    -- What costs is the number of values. Outside of strings each bracket, comma and colon comes before one at most.
    IF octet_length(written) > 100000 THEN
        outside := regexp_replace(replace(replace(written, E'\\\\', ''), E'\\"', ''), '"[^"]*"', '', 'g');
        IF length(outside) - length(translate(outside, '[{,:', '')) > 100000 THEN
            RETURN idem.refuse_params('more than 100000 values and names of members', '');
        END IF;
    END IF;
    IF position(E'\\u' IN written) > 0 THEN
        -- Escaped backslashes and whole pairs go first; what is left of an escape means what it says.
        written := replace(written, E'\\\\', '..');
        written := regexp_replace(written, E'\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}', '.', 'g');
        IF position(E'\\u0000' IN written) > 0 THEN
            RETURN idem.refuse_params('a NUL character cannot be stored', '');
        ELSIF written ~ E'\\\\u[dD][89a-fA-F]' THEN
            RETURN idem.refuse_params('a lone surrogate cannot be stored', '');
        END IF;
    END IF;
    -- Plain: ASCII without an escape, and no number but whole ones of at most 15 digits. A number follows a bracket, a comma
    -- or a colon; what may be one in a string costs the longer way. It asks the text itself: "written" lost its escapes.
    RETURN idem.jcs_value(p_value, '', 0, (p_value::text COLLATE "C")
        !~ E'[^\\t\\n\\r -\\[\\]-~]|[:,[][ \\t\\n\\r]*(-|[0-9]+[.eE]|[0-9]{16})');
END $$;

-- The params without the members that the pointers (RFC 6901) name; what is not there is not missed.
CREATE FUNCTION idem.params_without(p_params jsonb, p_pointers text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pointer  text;
    token    text;
    way      text[];
    parent   jsonb;
BEGIN
    FOREACH pointer IN ARRAY p_pointers LOOP
        way := ARRAY(SELECT replace(replace(t.token, '~1', '/'), '~0', '~')
                       FROM unnest((string_to_array(pointer, '/'))[2:]) WITH ORDINALITY AS t (token, place)
                      ORDER BY t.place);
        parent := p_params;
        FOREACH token IN ARRAY trim_array(way, 1) LOOP
            -- An index of a list is plain: PostgreSQL alone would count a negative one from the end.
            parent := CASE
                WHEN jsonb_typeof(parent) = 'object' OR token ~ '^(0|[1-9][0-9]{0,8})$' THEN parent #> ARRAY[token] END;
        END LOOP;
        IF jsonb_typeof(parent) = 'object' THEN
            p_params := p_params #- way;
        END IF;
    END LOOP;
    RETURN p_params;
END $$;
