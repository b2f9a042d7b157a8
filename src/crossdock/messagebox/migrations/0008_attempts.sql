-- A source that ends the process which reads it is recognised: it is noted when one is tried by itself.
ALTER TABLE intake ADD COLUMN attempts smallint NOT NULL DEFAULT 0;
COMMENT ON COLUMN intake.attempts IS 'how often it was tried by itself, after a process had ended: each may have ended one';

CREATE OR REPLACE FUNCTION create_host_role(host_name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    host_number smallint;
    role_name text;
    parent text;
BEGIN
    -- By number: a name may be too long for a role, or the same as another's after it has been cut.
    SELECT host.id, format('crossdock_%s_host_%s', to_hex(box.number), host.id)
      INTO STRICT host_number, role_name
      FROM host, box
     WHERE host.name = host_name;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXECUTE format('COMMENT ON ROLE %I IS %L', role_name, 'may work for the host ' || host_name || ' of one MessageBox');
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA crossdock TO %I', role_name);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA crossdock TO %I', role_name);
    -- Publishing writes to the queues of every host, by the name of the parent; reading them takes the right on the partition.
    EXECUTE format('REVOKE SELECT ON queue, claimed, scheduled, suspended FROM %I', role_name);
    EXECUTE format('GRANT INSERT ON queue, scheduled, suspended, message, part, fragment, publication, refusal, delivery,
                    message_ref_log_1, message_ref_log_2, part_ref_log_1, part_ref_log_2 TO %I', role_name);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON instance_subscription, host_instance, ordered_line TO %I', role_name);
    EXECUTE format('GRANT UPDATE (location_id, attempts), DELETE, INSERT ON intake TO %I', role_name);
    EXECUTE format('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA crossdock TO %I', role_name);
    FOR parent IN SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
                   WHERE relnamespace = 'crossdock'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('REVOKE ALL ON %I FROM %I', parent, role_name);
    END LOOP;
    FOREACH parent IN ARRAY ARRAY['queue', 'claimed', 'scheduled', 'suspended'] LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO %I', parent || '_' || host_number, role_name);
    END LOOP;
    RETURN role_name;
END $$;
