
CREATE FUNCTION public.ms(n integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT {now}::bigint - CASE WHEN n <= 100000 THEN (100010 - n) * 9000::bigint
                                ELSE 38880000000 - (n - 100000) * 1000000::bigint END
$$;
CREATE FUNCTION public.made(n integer) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT to_timestamp(public.ms(n) / 1000.0::float8)
$$;
CREATE FUNCTION public.id(n integer, kind integer) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(public.ms(n)), 12, '0') || '7' || lpad(to_hex(kind), 3, '0')
            || '8' || lpad(to_hex(n), 15, '0'))::uuid
$$;
