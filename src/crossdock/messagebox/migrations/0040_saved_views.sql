-- Searches are kept in the MessageBox instead of in one browser: whoever may see messages keeps views of its own.

CREATE TABLE saved_view (
    id            uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    database_user text        NOT NULL DEFAULT session_user,
    person        text        NOT NULL,
    name          text        NOT NULL,
    query         text        NOT NULL,
    saved_at      timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT names_of_one_person_differ UNIQUE (database_user, person, name)
);
COMMENT ON TABLE saved_view IS 'searches for messages that people keep under a name; who knows the id of one may open it';

ALTER TABLE saved_view ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_opens_what_is_shared ON saved_view FOR SELECT USING (true);
CREATE POLICY people_keep_their_own ON saved_view USING (database_user = session_user) WITH CHECK (database_user = session_user);

CREATE OR REPLACE FUNCTION create_access_role(what text, application_name text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    role_name text := access_role(what, application_name);
    place text;
    allowed text;
    granted text[] := CASE what
        WHEN 'viewer' THEN ARRAY[
            'USAGE ON SCHEMA crossdock',
            -- No definitions, which may hold secrets, no code, and no bodies.
            'SELECT ON migration, box, epoch_history, host, service_class, host_instance, application, property, send_port_group,
                       subscription, subscription_removal, predicate, correlation, intake, publication,
                       publication_total, queue, claimed, scheduled, suspended, instance, held, timer, convoy, subqueue_lease,
                       delivery, delivery_total, reference_log, routing_failure, refusal, audit, original, subscription_version,
                       track_published, track_settled, erased_message, publication_minute, delivery_minute, sample,
                       service_definition, shown_message, shown_few, shown_waiting',
            -- Personal values, and tokens by which requests are answered, are seen by views only, which mask them.
            'SELECT (id, part_count, created_at, parts, reference_count) ON message',
            'SELECT (id, instance_id, service_id, host_id, correlation_id, priority, bound_to, created_at) ON instance_subscription',
            'SELECT (id, name, application, host_id, class, transport_id, priority, ordered, two_way, predicate, state, deployed,
                     group_name, port_id, receives, version, subqueue) ON service',
            'SELECT (id, name, application, host_id, enabled, deployed) ON receive_location',
            'SELECT (digest, application, packages, created_at) ON orchestration_version',
            'SELECT (id, name, size, fragments, reference_count) ON part',
            'SELECT (at, transaction, publisher, epoch, message_ids, references_to, subscriptions, exceptions, origins,
                     first_reference, last_reference) ON track_few',
            'SELECT (at, segment, filter) ON track_personal',
            -- A policy says which rows may be changed.
            'SELECT, INSERT, UPDATE, DELETE ON saved_view',
            'EXECUTE ON FUNCTION audit, find_token']
        WHEN 'operator' THEN ARRAY[
            'EXECUTE ON FUNCTION resume_deliveries, terminate_deliveries, resume_stopped, resume_instances, cancel_instances',
            -- What is resumed begins or joins instances of orchestrations.
            'EXECUTE ON FUNCTION list_stopped, list_resumable, begin_suspended, find_instances, open_convoys, close_convoys',
            'SELECT (context) ON message',
            'SELECT ON SEQUENCE reference_sequence',
            -- To start and stop: policies say which rows.
            'UPDATE (state) ON service, send_port_group',
            'UPDATE (enabled) ON receive_location',
            'EXECUTE ON FUNCTION move_epoch, renew_location_token, enlist, insert_predicates, touch_subscription, unenlist,
                                 keep_versions']
        WHEN 'bodies' THEN ARRAY[
            'EXECUTE ON FUNCTION read_messages, read_piece',
            -- A policy says which rows.
            'SELECT ON history']
            -- Contexts and the track may hold personal values, the track bodies too, of all applications together.
            || CASE WHEN application_name IS NULL
                    THEN ARRAY['SELECT (context) ON message', 'SELECT ON track_personal, track_body, track_few'] END
        WHEN 'edit' THEN ARRAY[
            'EXECUTE ON FUNCTION edit_delivery, insert_fragment',
            'USAGE ON SEQUENCE ' || pg_get_serial_sequence('intake', 'sequence')]
        END;
BEGIN
    IF granted IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('there is no right %s', what);
    END IF;
    IF to_regrole(role_name) IS NULL THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXECUTE format('COMMENT ON ROLE %I IS %L', role_name,
                       concat('people who have the right ', what, ' in one MessageBox', ', for application ' || application_name));
    END IF;
    -- What an older version granted is taken back; nobody sees the moment between, since all of it is one transaction.
    FOR place IN SELECT format('%I.%I', nspname, relname)
                   FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                  WHERE nspname = 'crossdock' AND relkind IN ('r', 'p', 'v', 'S') AND NOT relispartition LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', place, role_name);
    END LOOP;
    FOREACH allowed IN ARRAY granted LOOP
        EXECUTE format('GRANT %s TO %I', allowed, role_name);
    END LOOP;
    IF what <> 'viewer' THEN
        EXECUTE format('GRANT %I TO %I', create_access_role('viewer'), role_name);
    END IF;
    IF what = 'edit' THEN
        EXECUTE format('GRANT %I TO %I', create_access_role('bodies', application_name), role_name);
    END IF;
    RETURN role_name;
END $$;
