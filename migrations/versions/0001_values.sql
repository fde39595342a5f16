-- Ids and moments. Times are timestamptz by the database's clock: statement_timestamp() for leases, due times and guards,
-- now() for created_at.

-- RFC 9562: 48 bits of Unix milliseconds, then version 7 and the variant over random bits. It is a column's default, so
-- it runs in sessions with any search_path: its names are looked up here, once, and not in each session. PostgreSQL's own
-- uuidv7() never goes back with the clock: after a clock that was ahead, a session's ids stay ahead until it ends.
CREATE FUNCTION idem.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
               PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;

-- The first id that idem.uuid7 can make at a moment: "made since" is a range of ids.
CREATE FUNCTION idem.first_uuid7(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3)
                  || decode('00000000000000000000', 'hex'), 'hex')::uuid;

-- Whether a moment of the past lies ahead of the database's clock: the clock was ahead when it was written, or is behind
-- now, and its true time is not known (docs/decisions/0041). A minute is less than any margin of a contract should be, and
-- more than two statements of one clock can be apart.
CREATE FUNCTION idem.is_ahead(moment timestamptz) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    RETURN moment > statement_timestamp() + interval '1 minute';

-- The earlier of two moments of sending; the one that lies ahead where one does, because the other cannot replace it.
CREATE FUNCTION idem.earlier(sent timestamptz, doubted timestamptz) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN idem.is_ahead(greatest(sent, doubted)) THEN greatest(sent, doubted) ELSE least(sent, doubted) END;

-- A moment as POSIX seconds; NULL: there is none, or it is not known.
CREATE FUNCTION idem.known_moment(moment timestamptz) RETURNS float8 LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN NOT idem.is_ahead(moment) THEN extract(epoch FROM moment)::float8 END;

-- Seconds since the earliest moment at which something that is not proven to be without effect may have been sent under
-- a row's key: its own first send, or what lost commits may have sent (`doubted`). NULL: nothing was sent. Infinity: a
-- moment that is not known. The planner puts the body of both in the place of the call, so that no plan is another one
-- for it.
CREATE FUNCTION idem.memory_age(sent timestamptz, doubted timestamptz) RETURNS float8 LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN idem.is_ahead(greatest(sent, doubted)) THEN float8 'Infinity'
                ELSE extract(epoch FROM statement_timestamp() - least(sent, doubted))::float8 END;

-- Seconds for which the provider is still sure to remember that: the smaller of what it promised when the row was
-- accepted and of what the contract states now, from that moment. `stated` NULL: it is not known here. 0 or less: no more.
-- `idem.outbox.settle.replay_window` has the same rule for what Python must compute.
CREATE FUNCTION idem.memory_left(sent timestamptz, doubted timestamptz, promised integer, stated float8) RETURNS float8
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN least(promised::float8, stated) - idem.memory_age(sent, doubted);

-- A secret as HMAC-SHA256 takes it (RFC 2104): filled up to a block, each byte XOR 54 for the inner hash, 92 for the outer.
CREATE FUNCTION idem.hmac_pad(p_key bytea, p_with integer) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    padded  bytea := CASE WHEN octet_length(p_key) > 64 THEN sha256(p_key) ELSE p_key END;
BEGIN
    padded := padded || decode(repeat('00', 64 - octet_length(padded)), 'hex');
    FOR place IN 0 .. 63 LOOP
        padded := set_byte(padded, place, get_byte(padded, place) # p_with);
    END LOOP;
    RETURN padded;
END $$;
