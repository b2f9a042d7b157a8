-- What was inserted into a queue is gone before anybody would scan it: as with messages and parts, going through it
-- because much was inserted takes from publishing and gives nothing.
CREATE OR REPLACE FUNCTION create_host(host_name text) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    host_number smallint;
    parent text;
BEGIN
    SELECT id INTO host_number FROM host WHERE name = host_name;
    IF FOUND THEN
        RETURN host_number;
    END IF;
    INSERT INTO host (name) VALUES (host_name) RETURNING id INTO host_number;
    FOREACH parent IN ARRAY ARRAY['queue', 'claimed', 'scheduled', 'suspended'] LOOP
        -- Queues turn over quickly: vacuum early, or dead rows slow every claim; but not for what was only inserted.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                        WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
                              autovacuum_vacuum_insert_threshold = -1)',
                       parent || '_' || host_number, parent);
        -- Attached, not created in place: that would have to wait for everybody who is publishing.
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%s)',
                       parent, parent || '_' || host_number, host_number);
    END LOOP;
    RETURN host_number;
END $$;
DO $$
DECLARE
    partition text;
BEGIN
    FOR partition IN SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
                      WHERE relnamespace = 'crossdock'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %I SET (autovacuum_vacuum_insert_threshold = -1)', partition);
    END LOOP;
END $$;

-- Messages and parts are found by their ids, and nothing else is asked of them: only their number has to be known. To know
-- more, PostgreSQL read 30,000 of their pages again and again while they came.
ALTER TABLE message ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN context SET STATISTICS 0,
    ALTER COLUMN part_count SET STATISTICS 0, ALTER COLUMN created_at SET STATISTICS 0,
    ALTER COLUMN parts SET STATISTICS 0, ALTER COLUMN given SET STATISTICS 0;
ALTER TABLE part ALTER COLUMN name SET STATISTICS 0, ALTER COLUMN body SET STATISTICS 0,
    ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN size SET STATISTICS 0,
    ALTER COLUMN fragments SET STATISTICS 0, ALTER COLUMN given SET STATISTICS 0;
