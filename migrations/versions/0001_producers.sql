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
CREATE FUNCTION idem.fingerprint(p_operation text, p_canonical text) RETURNS text LANGUAGE sql STABLE
    RETURN 'v1:' || encode(sha256(convert_to(
               '{' || CASE WHEN p_canonical = 'null' THEN '' ELSE '"body":' || p_canonical || ',' END
               || '"operation":' || to_json(p_operation)::text || '}', 'UTF8')), 'hex');

-- The fingerprint of params without the members that the pointers name, which it says itself
-- (outbox/domain/fingerprints.py).
CREATE FUNCTION idem.fingerprint_excluding(
    p_operation text, p_params jsonb, p_canonical text, p_left_out text[]
) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
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

-- The key that is sent to the provider (outbox/domain/keys.py): the HMAC-SHA256 of its scope under the installation's
-- secret, as a UUID of version 8. The planner puts the body in the place of the call.
CREATE FUNCTION idem.provider_key(
    p_inner bytea, p_outer bytea, p_tenant text, p_operation text, p_key text, p_step integer, p_generation integer
) RETURNS uuid LANGUAGE sql STABLE
    RETURN encode(set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(substring(
               sha256(p_outer || sha256(p_inner || convert_to(
                   '["idem provider key v1",' || to_json(p_tenant)::text || ',' || to_json(p_operation)::text || ','
                   || to_json(p_key)::text || ',' || p_step || ',' || p_generation || ']', 'UTF8')))
               FROM 1 FOR 16), 52, 0), 53, 0), 54, 0), 55, 1), 70, 0), 71, 1), 'hex')::uuid;

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

-- Whether params in their canonical form may have anything that `card_data` finds: true wherever it does, and seldom else.
-- It reads the text once, and not each member.
CREATE FUNCTION idem.may_have_card_data(p_canonical text) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN (p_canonical COLLATE "C") ~* (E'[2-6][0-9]{3}([ -]?[0-9]){9}|[^ -\\[\\]-~]|s[^a-z0-9]*e[^a-z0-9]*c[^a-z0-9]*u'
        '|c[^a-z0-9]*(a[^a-z0-9]*r[^a-z0-9]*d|v[^a-z0-9]*[vcn]|s[^a-z0-9]*c)|p[^a-z0-9]*a[^a-z0-9]*n');

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
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d          idem.decision;
    known      record;
    canonical  text;
    params     jsonb;
    key        text;
    print      text;
    stored     text;
    without    text[];
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
    SELECT o.provider, o.account, o.settings ->> 'kind' AS kind, o.settings ->> 'origin' AS origin,
           make_interval(secs => (o.settings ->> 'key_ttl')::float8) AS key_ttl,
           make_interval(secs => (o.settings ->> 'patience')::float8) AS patience,
           (o.settings ->> 'refuse_after_expiry')::boolean AS refuse_after_expiry,
           nullif(o.settings -> 'fingerprint_without', '[]') AS without,
           (o.settings ->> 'replay_window')::integer AS replay_window,
           (o.settings ->> 'marks_start')::boolean AS marks_start, o.settings ->> 'card_data' AS card_data,
           (o.settings ->> 'max_bytes')::integer AS max_bytes, o.settings -> 'plan' AS plan,
           o.settings ->> 'ordering_group' AS ordering_group,
           nullif(o.settings -> 'ordering_key', 'null') AS ordering_key,
           (o.settings ->> 'refusal_holds')::boolean AS refusal_holds
      INTO known FROM idem.operations o WHERE o.name = p_operation;
    key := CASE WHEN (p_key COLLATE "C") ~ '^[-a-zA-Z0-9_.:]+$' AND length(p_key) <= 255 THEN p_key
                ELSE idem.parse_key(p_key) END;
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
        ELSIF octet_length(p_params::text) > known.max_bytes THEN
            PERFORM idem.refuse_params(
                format('they have %s bytes, more than %s', octet_length(p_params::text), known.max_bytes), '');
        END IF;
    END IF;
    canonical := idem.jcs(p_params);
    params := canonical::jsonb;
    IF stored IS NOT NULL THEN
        without := idem.fingerprint_exclusions(stored);
    ELSE
        IF known.card_data = 'refuse' AND idem.may_have_card_data(canonical) AND idem.card_data(params) IS NOT NULL THEN
            PERFORM idem.refuse_params(idem.card_data(params) || ', which must not be stored', idem.card_data_at(params),
                                       'Send the provider''s token for it.');
        END IF;
        IF known.ordering_key IS NOT NULL OR p_ordering_key IS NOT NULL THEN
            ordered := idem.ordering_key_of(
                params,
                CASE WHEN known.ordering_key IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(known.ordering_key)) END,
                p_ordering_key);
        END IF;
        IF known.without IS NOT NULL THEN
            without := ARRAY(SELECT jsonb_array_elements_text(known.without));
        END IF;
    END IF;
    print := CASE WHEN without IS NULL THEN idem.fingerprint(p_operation, canonical)
                  ELSE idem.fingerprint_excluding(p_operation, params, canonical, without) END;

    -- Whether the call needs an approval is Python's to say: the worker that renders it decides.
    d := idem.accept_key('accepted', p_tenant, p_operation, key, print, params, NULL,
                         CASE WHEN known.kind = 'provider' THEN known.provider END, known.account, known.key_ttl,
                         coalesce(known.patience, interval '1 day'), known.refuse_after_expiry, stored IS NULL, true, known.plan, 'undecided',
                         session_user, 'derived', known.origin, NULL, NULL, NULL, NULL, NULL, known.replay_window,
                         known.marks_start, NULL, known.ordering_group, ordered, known.refusal_holds);
    IF d.decision = 'failed_retryable' THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('intent %s is at rest: it is proven that nothing happened, and no worker would make its call, '
                             'because operation %L is not in this database now, or goes to another provider or account '
                             'than its call was made for; nothing was written', d.intent_id, p_operation),
            HINT = format('Configure the operation as it was, run `idem db sync`, and send the same request with the same '
                          'key again; or run `idem intents cancel %s`.', d.intent_id);
    ELSIF d.decision = 'limited' THEN
        RAISE EXCEPTION USING ERRCODE = 'lock_not_available',
            MESSAGE = 'the key expired for good at this moment; nothing was written',
            HINT = 'Send the same request with the same key again.';
    END IF;
    d.fingerprint := NULL;
    IF p_notify AND d.decision IN ('accepted', 'retrying') THEN
        PERFORM pg_notify('idem_outbox', '');
    END IF;
    RETURN d;
END $$;
