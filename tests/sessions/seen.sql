
CREATE TABLE public.bought (key text PRIMARY KEY);
CREATE TABLE public.commits (at text, relation text);
CREATE FUNCTION public.look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.commits VALUES (pg_catalog.current_setting('synchronous_commit'), TG_TABLE_NAME);
    RETURN NULL;
END $$;
DO $$
DECLARE
    each record;
BEGIN
    FOR each IN SELECT c.relname AS name FROM pg_class c
                 WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('CREATE CONSTRAINT TRIGGER zz_look AFTER INSERT OR UPDATE OR DELETE ON idem.%I
                        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.look()', each.name);
    END LOOP;
END $$
