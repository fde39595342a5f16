-- Accept for every language: params as JSON text; canonical form, fingerprint and provider key are made here. What
-- outbox/domain/keys.py does in Python is done again here; tests hold both against each other.

-- What a stored fingerprint leaves out of the params (outbox/domain/fingerprints.py); NULL: it is not composed of members.
CREATE FUNCTION idem.fingerprint_exclusions(p_fingerprint text) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found  text[] := regexp_match(p_fingerprint, E'^v1(?:-without(\\[.*\\]))?:[0-9a-f]{64}$');
BEGIN
    IF found IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(SELECT json_array_elements_text(coalesce(found[1], '[]')::json));
END $$;

-- The fingerprint of a client's request (outbox/domain/keys.py) from the canonical form of its params.
CREATE FUNCTION idem.fingerprint(p_operation text, p_canonical text) RETURNS text LANGUAGE sql IMMUTABLE
    RETURN 'v1:' || encode(sha256(convert_to(
               '{' || CASE WHEN p_canonical = 'null' THEN '' ELSE '"body":' || p_canonical || ',' END
               || '"operation":' || to_json(p_operation)::text || '}', 'UTF8')), 'hex');

-- The fingerprint of params without the members that the pointers name, which it says itself
-- (outbox/domain/fingerprints.py).
CREATE FUNCTION idem.fingerprint_excluding(
    p_operation text, p_params jsonb, p_canonical text, p_left_out text[]
) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1 AS $$
DECLARE
    names  text;
BEGIN
    IF cardinality(p_left_out) > 0 IS NOT TRUE THEN
        RETURN idem.fingerprint(p_operation, p_canonical);
    END IF;
    SELECT '[' || string_agg(to_json(n.name)::text, ',' ORDER BY n.name COLLATE "C") || ']' INTO names
      FROM (SELECT DISTINCT u.name FROM unnest(p_left_out) AS u (name)) AS n;
    RETURN 'v1-without' || names || substr(idem.fingerprint(p_operation,
        idem.jcs_value(idem.params_without(p_params, p_left_out)::text::json, '', 0)), 3);
END $$;

CREATE FUNCTION idem.hmac_sha256(p_key bytea, p_message bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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

-- The key that is sent to the provider (outbox/domain/keys.py): a UUID of version 8.
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

-- The key in its bare or its quoted spelling (outbox/domain/keys.py, parse_key).
CREATE FUNCTION idem.parse_key(p_key text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
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
        WHEN bare ~ '[,;]' AND NOT quoted        THEN 'a comma or a semicolon is allowed only in a key in double quotes'
        WHEN length(bare) > 255                  THEN format('it has %s characters, more than 255', length(bare)) END;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'the idempotency key is not usable: ' || why,
            HINT = 'Send 1 to 255 visible ASCII characters: one key for one request, the same at each retry.';
    END IF;
    RETURN bare;
END $$;

-- What resembles card data (outbox/values/card_data.py), or NULL. The values are never quoted.
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

-- The pointer of what `card_data` found. It reads member by member, so only a refusal asks for it.
CREATE FUNCTION idem.card_data_at(p_params jsonb) RETURNS text LANGUAGE sql IMMUTABLE RETURN (
    WITH RECURSIVE walked (at, name, value) AS (
        SELECT '', '', p_params
        UNION ALL
        SELECT idem.jcs_pointer(w.at, m.name), CASE WHEN m.is_member THEN m.name ELSE '' END, m.value
          FROM walked w
         CROSS JOIN LATERAL (
               SELECT o.key, true, o.value
                 FROM jsonb_each(CASE jsonb_typeof(w.value) WHEN 'object' THEN w.value ELSE '{}' END) AS o
                UNION ALL
               SELECT (a.place - 1)::text, false, a.value
                 FROM jsonb_array_elements(CASE jsonb_typeof(w.value) WHEN 'array' THEN w.value ELSE '[]' END)
                      WITH ORDINALITY AS a (value, place)) AS m (name, is_member, value)
    )
    SELECT w.at FROM walked w
     WHERE idem.card_data(jsonb_build_object(w.name, CASE WHEN jsonb_typeof(w.value) IN ('object', 'array')
                                                          THEN 'true' ELSE w.value END)) IS NOT NULL
     LIMIT 1);

-- The ordering key of a request (outbox/domain/ordering.py): of the field of the params at `p_path`, where the operation
-- names one, else the given one; NULL: none. Raises what refuses params, and an error for a given key that is not usable.
CREATE FUNCTION idem.ordering_key_of(p_params jsonb, p_path text[], p_given text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found  text := coalesce(p_params #>> p_path, CASE WHEN p_path IS NULL THEN p_given END);
    place  text := '/' || array_to_string(ARRAY(SELECT replace(replace(p, '~', '~0'), '/', '~1')
                                                  FROM unnest(p_path) WITH ORDINALITY AS u (p, n) ORDER BY n), '/');
BEGIN
    IF p_path IS NOT NULL AND (jsonb_typeof(p_params #> p_path) IN ('string', 'number')) IS NOT TRUE
       OR jsonb_typeof(p_params #> p_path) = 'number' AND found !~ '^-?[0-9]+$'
       OR p_path IS NOT NULL AND NOT length(found) BETWEEN 1 AND 255 THEN
        PERFORM idem.refuse_params('the ordering key of this operation is a text of 1 to 255 characters or a whole '
                                   'number', place);
    ELSIF p_path IS NOT NULL AND p_given <> found THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('the operation takes its ordering key from its params at %s, and another one was given; '
                             'nothing was written', place),
            HINT = 'Leave p_ordering_key out.';
    ELSIF NOT length(found) BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('an ordering key has 1 to 255 characters, and this one has %s; nothing was written',
                             length(found)),
            HINT = 'Name what the order is of by its id, e.g. that of the customer.';
    END IF;
    RETURN found;
END $$;

-- Accept by SQL alone, in the caller's transaction: the request is rendered later, by a worker. With an ordering key the
-- call waits for open transactions that have accepted something of the same key.
CREATE FUNCTION idem.accept(
    p_tenant text, p_operation text, p_key text, p_params json, p_notify boolean DEFAULT false,
    p_ordering_key text DEFAULT NULL
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
    patience   interval;
    ordered    text := p_ordering_key;
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
            HINT = format('As the owner of the schema, run `idem db grant %s --as sql --tenant %s`, with a further --tenant for '
                          'each tenant that the role has now: a grant replaces them.', session_user, p_tenant);
    END IF;
    SELECT o.provider, o.account, s.* INTO known
      FROM idem.operations o, jsonb_to_record(o.settings) AS s (
               kind text, origin text, key_ttl float8, patience float8, refuse_after_expiry boolean,
               fingerprint_without text[], replay_window integer, marks_start boolean, card_data text, max_bytes integer,
               plan jsonb, ordering_group text, ordering_key text[], refusal_holds boolean)
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
        PERFORM idem.refuse_params(idem.card_data(params) || ', which must not be stored', idem.card_data_at(params),
                                   'Send the provider''s token for it.');
    END IF;
    IF stored IS NULL THEN
        ordered := idem.ordering_key_of(params, known.ordering_key, p_ordering_key);
    END IF;
    print := idem.fingerprint_excluding(
        p_operation, params, canonical,
        CASE WHEN stored IS NULL THEN known.fingerprint_without ELSE idem.fingerprint_exclusions(stored) END);

    patience := make_interval(secs => coalesce(known.patience, 86400));
    d := idem.accept_key('accepted', p_tenant, p_operation, key, print, params, NULL,
                         CASE WHEN known.kind = 'provider' THEN known.provider END, known.account,
                         make_interval(secs => known.key_ttl), patience, known.refuse_after_expiry, stored IS NULL,
                         known.plan, 'undecided', session_user);
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
    PERFORM idem.count_decision(p_tenant, p_operation, print, d);
    d.fingerprint := NULL;
    IF d.decision = 'accepted' THEN
        -- Whether the call needs an approval is Python's to say: the worker that renders it decides.
        d.status := idem.queue_call(d.intent_id, p_operation, known.provider, known.account, known.origin,
                                    (SELECT idem.provider_key(i.secret, p_tenant, p_operation, key, 1, 1)
                                       FROM idem.installation i),
                                    NULL, NULL, NULL, NULL, patience, known.replay_window, known.marks_start, NULL,
                                    known.plan, known.ordering_group, ordered, known.refusal_holds, 'undecided');
        d.due_in := 0;
    END IF;
    IF d.decision IN ('accepted', 'retrying') AND p_notify THEN
        PERFORM pg_notify('idem_outbox', '');
    END IF;
    RETURN d;
END $$;
