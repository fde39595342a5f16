-- Accept for every language: params as JSON text, canonical form, fingerprint and provider key made here, by no extension.
-- What outbox/canonical.py and outbox/keys.py do in Python is done again here; tests hold both against each other.
-- Literals with a backslash are written E'': they mean the same whatever standard_conforming_strings is.

CREATE FUNCTION idem.refuse_params(p_why text, p_at text, p_hint text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
        MESSAGE = format('idem refuses these params: %s (at %s)', p_why, coalesce(nullif(p_at, ''), 'the top')),
        HINT = coalesce(p_hint, 'Nothing was written. Correct the params and send them with the same key.');
END $$;

-- The digits of a number between its first and its last that is not 0, and where its point is: 0.digits * 10^point.
-- NULL for an exponent that nothing can hold; no digits for zero.
CREATE FUNCTION idem.significant(p_number text, OUT digits text, OUT point bigint) LANGUAGE plpgsql IMMUTABLE AS $$
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

-- Runs where extra_float_digits makes a double's text its shortest.
CREATE FUNCTION idem.jcs_number(p_number text, p_at text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
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
    SELECT * INTO given FROM idem.significant(p_number);
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
    IF (given.digits, given.point) IS DISTINCT FROM (SELECT (s.digits, s.point) FROM idem.significant(double::text) AS s)
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
CREATE FUNCTION idem.utf16_order(p_name text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN (p_name COLLATE "C") ~ E'[\\uE000-\\U0010FFFF]'
        THEN regexp_replace(
                 regexp_replace(p_name COLLATE "C", E'([\\uE000-\\uFFFF])', chr(57345) || E'\\1', 'g'),
                 E'([\\U00010000-\\U0010FFFF])', chr(57344) || E'\\1', 'g')
        ELSE p_name END;

-- The JSON pointer of a member, for a refusal. A long name is cut: the place is written for every value below it.
CREATE FUNCTION idem.jcs_place(p_at text, p_name text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN p_at || '/' || replace(replace(left(p_name, 60), '~', '~0'), '/', '~1')
           || CASE WHEN length(p_name) > 60 THEN '…' ELSE '' END;

CREATE FUNCTION idem.jcs_value(p_value json, p_at text, p_depth integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    members  bigint;
    names    bigint;
    inside   text;
    twice    text;
BEGIN
    CASE json_typeof(p_value)
    WHEN 'string' THEN
        RETURN to_json(p_value #>> '{}')::text;
    WHEN 'number' THEN
        RETURN idem.jcs_number(btrim(p_value::text, E' \t\n\r'), p_at);
    WHEN 'object', 'array' THEN
        IF p_depth >= 64 THEN
            RETURN idem.refuse_params('nested deeper than 64', p_at);
        END IF;
    ELSE
        RETURN btrim(p_value::text, E' \t\n\r');
    END CASE;
    IF json_typeof(p_value) = 'array' THEN
        SELECT string_agg(idem.jcs_value(i.value, p_at || '/' || i.place - 1, p_depth + 1), ',' ORDER BY i.place)
          INTO inside FROM json_array_elements(p_value) WITH ORDINALITY AS i (value, place);
        RETURN '[' || coalesce(inside, '') || ']';
    END IF;
    SELECT count(*), count(DISTINCT m.key COLLATE "C"),
           string_agg(to_json(m.key)::text || ':' || idem.jcs_value(m.value, idem.jcs_place(p_at, m.key), p_depth + 1),
                      ',' ORDER BY idem.utf16_order(m.key) COLLATE "C")
      INTO members, names, inside FROM json_each(p_value) AS m;
    IF members <> names THEN
        SELECT m.key INTO twice FROM json_each(p_value) AS m GROUP BY m.key COLLATE "C", m.key HAVING count(*) > 1
         LIMIT 1;
        RETURN idem.refuse_params('a member appears twice', idem.jcs_place(p_at, twice));
    END IF;
    RETURN '{' || coalesce(inside, '') || '}';
END $$;

-- The canonical form (JCS, RFC 8785) of JSON that is held exactly. Takes json, because jsonb would have lost what is
-- refused here.
CREATE FUNCTION idem.jcs(p_value json) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
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
    -- What costs is the number of values. Outside of strings each bracket, comma and colon stands before one at most.
    outside := regexp_replace(replace(replace(written, E'\\\\', ''), E'\\"', ''), '"[^"]*"', '', 'g');
    IF length(outside) - length(translate(outside, '[{,:', '')) > 100000 THEN
        RETURN idem.refuse_params('more than 100000 values and names of members', '');
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
    RETURN idem.jcs_value(p_value, '', 0);
END $$;

-- The params without the members that the pointers (RFC 6901) name; what is not there is not missed.
CREATE FUNCTION idem.without(p_params jsonb, p_pointers text[]) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
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

-- What a stored fingerprint leaves out of the params (outbox/fingerprints.py); NULL: it is not composed of members.
CREATE FUNCTION idem.left_out(p_fingerprint text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    found  text[] := regexp_match(p_fingerprint, E'^v1(?:-without(\\[.*\\]))?:[0-9a-f]{64}$');
BEGIN
    IF found IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(SELECT json_array_elements_text(coalesce(found[1], '[]')::json));
END $$;

-- The fingerprint of params without the members that the pointers name, which it says itself (outbox/fingerprints.py).
CREATE FUNCTION idem.composed(p_operation text, p_params jsonb, p_canonical text, p_left_out text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET extra_float_digits = 1 AS $$
DECLARE
    names  text;
BEGIN
    IF cardinality(p_left_out) > 0 IS NOT TRUE THEN
        RETURN idem.fingerprint(p_operation, p_canonical);
    END IF;
    SELECT '[' || string_agg(to_json(n.name)::text, ',' ORDER BY n.name COLLATE "C") || ']' INTO names
      FROM (SELECT DISTINCT u.name FROM unnest(p_left_out) AS u (name)) AS n;
    RETURN 'v1-without' || names || substr(idem.fingerprint(p_operation,
        idem.jcs_value(idem.without(p_params, p_left_out)::text::json, '', 0)), 3);
END $$;

-- The fingerprint of a client's request (outbox/keys.py) from the canonical form of its params.
CREATE FUNCTION idem.fingerprint(p_operation text, p_canonical text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN 'v1:' || encode(sha256(convert_to(
               '{' || CASE WHEN p_canonical = 'null' THEN '' ELSE '"body":' || p_canonical || ',' END
               || '"operation":' || to_json(p_operation)::text || '}', 'UTF8')), 'hex');

CREATE FUNCTION idem.hmac_sha256(p_key bytea, p_message bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    padded  bytea := CASE WHEN octet_length(p_key) > 64 THEN sha256(p_key) ELSE p_key END;
    inner_  bytea;
    outer_  bytea;
BEGIN
    padded := padded || decode(repeat('00', 64 - octet_length(padded)), 'hex');
    inner_ := padded;
    outer_ := padded;
    FOR place IN 0 .. 63 LOOP
        inner_ := set_byte(inner_, place, get_byte(padded, place) # 54);
        outer_ := set_byte(outer_, place, get_byte(padded, place) # 92);
    END LOOP;
    RETURN sha256(outer_ || sha256(inner_ || p_message));
END $$;

-- The key that is sent to the provider (outbox/keys.py): a UUID of version 8.
CREATE FUNCTION idem.provider_key(
    p_secret bytea, p_tenant text, p_operation text, p_key text, p_step integer, p_generation integer
) RETURNS uuid LANGUAGE sql IMMUTABLE RETURN (
    SELECT overlay(overlay(made.hex PLACING '8' FROM 13)
                   PLACING substr('89ab', 1 + (get_byte(made.mac, 8) >> 4 & 3), 1) FROM 17)::uuid
      FROM (SELECT mac.mac, substr(encode(mac.mac, 'hex'), 1, 32) AS hex
              FROM idem.hmac_sha256(p_secret, convert_to(
                       '["idem provider key v1",' || to_json(p_tenant)::text || ',' || to_json(p_operation)::text || ','
                       || to_json(p_key)::text || ',' || p_step || ',' || p_generation || ']', 'UTF8')) AS mac (mac)
           ) AS made);

-- The key in its bare or its quoted spelling (outbox/keys.py, parse_key).
CREATE FUNCTION idem.parse_key(p_key text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    written  text := btrim(p_key, E' \t');
    quoted   boolean := written ~ '^".*"$' AND length(written) > 1;
    bare     text := CASE WHEN quoted THEN substr(written, 2, length(written) - 2) ELSE written END;
    why      text;
BEGIN
    why := CASE
        WHEN coalesce(written, '') = ''          THEN 'it is missing'
        WHEN bare = ''                           THEN 'it is empty'
        WHEN (bare COLLATE "C") !~ '^[!-~]+$'    THEN 'only visible ASCII characters are allowed, no spaces'
        WHEN bare ~ E'["\\\\]'                   THEN 'a quote or a backslash is never part of a key'
        WHEN bare ~ '[,;]' AND NOT quoted        THEN 'a comma or a semicolon may stand only in a key in double quotes'
        WHEN length(bare) > 255                  THEN format('it has %s characters, more than 255', length(bare)) END;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'the idempotency key is not usable: ' || why,
            HINT = 'Send 1 to 255 visible ASCII characters: one key for one wish, the same at each retry.';
    END IF;
    RETURN bare;
END $$;

-- What looks like card data (outbox/card_data.py), or NULL. The values are never quoted.
CREATE FUNCTION idem.card_data(p_params jsonb) RETURNS text LANGUAGE sql IMMUTABLE RETURN (
    SELECT found.what FROM (
        SELECT format('member %s has the name of a card number or a security code', m ->> 'key') AS what
          FROM jsonb_path_query(p_params, 'strict $.** ? (@.type() == "object").keyvalue()') AS m
         WHERE regexp_replace(lower(replace(m ->> 'key', chr(304), 'i') COLLATE "C"), '[^a-z0-9]', '', 'g') IN (
                   'cardnumber', 'creditcardnumber', 'pan', 'cvv', 'cvv2', 'cvc', 'cvc2', 'cvn', 'csc', 'cardcode',
                   'securitycode', 'cardsecuritycode', 'cardverificationvalue', 'cardverificationcode')
           AND m -> 'value' NOT IN ('null', '""')
        UNION ALL
        SELECT 'a value has the digits of a card number'
          FROM jsonb_path_query(p_params, 'strict $.** ? (@.type() == "string" || @.type() == "number")') AS v,
               regexp_replace(v #>> '{}', '[ -]', '', 'g') AS digits
         WHERE (v #>> '{}') ~ '^[2-6][0-9]{3}([ -]?[0-9]){9,15}$'
           AND 0 = (SELECT sum(CASE WHEN place % 2 = 0 THEN digit * 2 / 10 + digit * 2 % 10 ELSE digit END) % 10
                      FROM generate_series(1, length(digits)) AS place,
                           CAST(substr(reverse(digits), place, 1) AS integer) AS digit)
    ) AS found LIMIT 1);

-- Which database roles may accept for which tenants by SQL alone; tenant '*' is every tenant. A name can come to belong
-- to another role (a new one, a renamed one, that of another cluster), so its number must be right too.
CREATE TABLE idem.producers (
    role        text        COLLATE "C" NOT NULL,
    role_oid    oid         NOT NULL,
    tenant      text        COLLATE "C" NOT NULL,
    granted_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (role, tenant)
);

CREATE FUNCTION idem.may_produce(p_tenant text) RETURNS boolean LANGUAGE sql STABLE
    RETURN pg_has_role(session_user, current_user, 'MEMBER')
        OR EXISTS (SELECT FROM idem.producers p JOIN pg_roles r ON r.oid = p.role_oid AND r.rolname = p.role
                    WHERE p.tenant IN (p_tenant, '*') AND pg_has_role(session_user, r.oid, 'MEMBER'));

-- Accept by SQL alone, in the caller's transaction: the request is rendered later, by a worker.
CREATE FUNCTION idem.accept(
    p_tenant text, p_operation text, p_key text, p_params json, p_notify boolean DEFAULT false
) RETURNS idem.decision
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    d          idem.decision;
    known      record;
    canonical  text;
    params     jsonb;
    key        text;
    print      text;
    stored     text;
    row_id     uuid;
BEGIN
    IF coalesce(p_tenant, '') = '' OR p_params IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'idem.accept needs a tenant and params; nothing was written',
            HINT = 'idem.accept(tenant, operation, key, params): an operation without params takes the JSON object {}.';
    ELSIF octet_length(p_tenant) > 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('a tenant has at most 255 bytes, and this one has %s; nothing was written',
                             octet_length(p_tenant)),
            HINT = 'Name the caller''s account by its id, the same at every retry.';
    ELSIF NOT idem.may_produce(p_tenant) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('role %s may not accept for tenant %L', session_user, p_tenant),
            HINT = format('Run `idem db grant %s --as sql --tenant %s` as the owner of the schema.', session_user, p_tenant);
    END IF;
    SELECT o.provider, o.account, s.* INTO known
      FROM idem.operations o, jsonb_to_record(o.settings) AS s (
               kind text, origin text, key_ttl float8, patience float8, refuse_after_expiry boolean,
               fingerprint_without text[], replay_window integer, marks_start boolean, card_data text, max_bytes integer)
     WHERE o.name = p_operation;
    key := idem.parse_key(p_key);
    -- A key that is known is decided by what it was accepted under: what the operation would refuse now, or leave out of
    -- the fingerprint now, changes nothing about it.
    SELECT k.fingerprint INTO stored FROM idem.idempotency_keys k
     WHERE k.tenant_id = p_tenant AND k.operation = p_operation AND k.idempotency_key = key;
    IF stored IS NULL THEN
        IF known.kind IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_object',
                MESSAGE = format('idem knows no operation %L in this database', p_operation),
                HINT = 'Run `idem db sync` with the configuration that defines it.';
        ELSIF known.kind <> 'provider' THEN
            RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
                MESSAGE = format('operation %L is %s: its effect is caused by the application''s own code, so SQL alone '
                                 'cannot accept it', p_operation, known.kind),
                HINT = 'Use it from Python, or define an operation with a provider and a request.';
        END IF;
        IF octet_length(p_params::text) > known.max_bytes THEN
            PERFORM idem.refuse_params(
                format('they have %s bytes, more than %s', octet_length(p_params::text), known.max_bytes), '');
        END IF;
    END IF;
    canonical := idem.jcs(p_params);
    params := canonical::jsonb;
    IF stored IS NULL AND known.card_data = 'refuse' AND idem.card_data(params) IS NOT NULL THEN
        PERFORM idem.refuse_params(idem.card_data(params) || ', which must not be stored', '',
                                   'Send the provider''s token for it.');
    END IF;
    print := idem.composed(p_operation, params, canonical,
                           CASE WHEN stored IS NULL THEN known.fingerprint_without ELSE idem.left_out(stored) END);

    d := idem.reserve(p_tenant, p_operation, key, print, make_interval(secs => known.key_ttl),
                      make_interval(secs => coalesce(known.patience, 86400)), known.refuse_after_expiry,
                      stored IS NULL, CASE WHEN known.kind = 'provider' THEN known.provider END, known.account);
    IF d.decision = 'failed_retryable' THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('intent %s is at rest: it is proven that nothing happened, and no worker would make its call, '
                             'because operation %L is not in this database now, or goes to another provider or account '
                             'than its call was made for; nothing was written', d.intent_id, p_operation),
            HINT = format('Configure the operation as it was, run `idem db sync`, and send the same request with the same '
                          'key again; or run `idem intents cancel %s`.', d.intent_id);
    END IF;
    IF d.decision = 'limited' THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = 'the key expired for good at this moment; nothing was written',
            HINT = 'Send the same request with the same key again.';
    END IF;
    d.fingerprint := NULL;
    IF d.decision = 'reserved' THEN
        row_id := idem.uuid7();
        INSERT INTO idem.intents (id, tenant_id, operation, idempotency_key, provider, account, params, wanted_at)
        VALUES (d.intent_id, p_tenant, p_operation, key, known.provider, known.account, params, statement_timestamp());
        INSERT INTO idem.outbox (id, intent_id, status, status_since, available_at, start_before, operation, provider,
                                 account, origin, provider_key, replay_window, marks_start)
        SELECT row_id, d.intent_id, 'unfrozen', statement_timestamp(), statement_timestamp(),
               statement_timestamp() + make_interval(secs => known.patience), p_operation, known.provider,
               known.account, known.origin, idem.provider_key(i.secret, p_tenant, p_operation, key, 1, 1),
               known.replay_window, known.marks_start
          FROM idem.installation i;
        INSERT INTO idem.evidence (intent_id, outbox_id, step, attempt, source, kind, to_state, to_status,
                                   database_role)
        VALUES (d.intent_id, row_id, 1, 0, 'accept', 'accepted', 'in_progress', 'unfrozen', session_user);
        UPDATE idem.idempotency_keys SET reserved = false
         WHERE tenant_id = p_tenant AND operation = p_operation AND idempotency_key = key;
        d.decision := 'accepted';
        d.step := 'unfrozen';
        d.due_in := 0;
    END IF;
    IF d.decision IN ('accepted', 'retrying') AND p_notify THEN
        PERFORM pg_notify('idem_outbox', '');
    END IF;
    RETURN d;
END $$;
REVOKE EXECUTE ON FUNCTION idem.accept(text, text, text, json, boolean) FROM PUBLIC;
