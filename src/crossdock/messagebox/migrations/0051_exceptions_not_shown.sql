-- What was published a few at a time says by which values the instances wait that it begins, and by which tokens requests are
-- answered: viewers see the rest of that, by a view.

CREATE FUNCTION shown_exceptions(exceptions json) RETURNS json LANGUAGE sql STABLE
BEGIN ATOMIC
    -- What the track keeps of them. The values and hashes by which instances wait, and tokens of requests, are not among it.
    SELECT json_object_agg(kind.name, noted.rows)
      FROM unnest(ARRAY['queued', 'activated', 'stopped', 'suspended', 'refused']) AS kind (name)
     CROSS JOIN LATERAL (SELECT json_agg(json_strip_nulls(to_json(row))) AS rows
                           FROM json_to_recordset(CASE WHEN json_typeof(exceptions -> kind.name) = 'array'
                                                       THEN exceptions -> kind.name END)
                                AS row (message_id json, subscription_id json, instance_id json, code json, reason json,
                                        labels json)) AS noted
     WHERE noted.rows IS NOT NULL;
END;
COMMENT ON FUNCTION shown_exceptions IS 'what was written besides messages and references, as people may see it';

CREATE OR REPLACE VIEW shown_few AS
    SELECT at, transaction, publisher, epoch, message_ids,
           CASE WHEN (SELECT sees_personal()) THEN ARRAY(SELECT unnest(contexts)::text)
                ELSE ARRAY(SELECT regexp_replace(context::text, (SELECT hidden_members()), '\1"***"', 'g')
                             FROM unnest(contexts) AS context) END AS contexts,
           references_to, subscriptions,
           CASE WHEN (SELECT sees_personal()) THEN exceptions ELSE shown_exceptions(exceptions) END AS exceptions, origins,
           first_reference, last_reference
      FROM track_few;

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
                       subscription, subscription_removal, predicate, correlation, publication,
                       publication_total, queue, claimed, scheduled, suspended, instance, held, timer, subqueue_lease,
                       delivery, delivery_total, reference_log, routing_failure, refusal, audit, original, subscription_version,
                       track_published, track_settled, erased_message, publication_minute, delivery_minute, sample,
                       service_definition, shown_message, shown_few, shown_waiting, shown_filter',
            -- Personal values, and tokens by which requests are answered, are seen by views only, which mask them.
            'SELECT (id, part_count, created_at, parts, reference_count) ON message',
            -- Whoever knows the random bits of a source knows the ids that its messages will have.
            'SELECT (sequence, location_id, identity, size, listed_at, attempts, due_at, claimed_by, failures, reason) ON intake',
            'SELECT (id, instance_id, service_id, host_id, correlation_id, priority, bound_to, created_at) ON instance_subscription',
            'SELECT (id, name, application, host_id, class, transport_id, priority, ordered, two_way, predicate, state, deployed,
                     group_name, port_id, receives, version, subqueue) ON service',
            'SELECT (id, name, application, host_id, enabled, deployed) ON receive_location',
            'SELECT (digest, application, packages, created_at) ON orchestration_version',
            'SELECT (id, name, size, fragments, reference_count) ON part',
            'SELECT (at, transaction, publisher, epoch, message_ids, references_to, subscriptions, origins, first_reference,
                     last_reference) ON track_few',
            'SELECT (at, segment) ON track_personal',
            -- Policies say which rows.
            'SELECT ON history',
            'SELECT, INSERT, UPDATE, DELETE ON saved_view',
            'EXECUTE ON FUNCTION audit, find_token, find_view']
        WHEN 'operator' THEN ARRAY[
            'EXECUTE ON FUNCTION resume_deliveries, terminate_deliveries, resume_stopped, resume_instances, cancel_instances',
            -- What is resumed begins or joins instances of orchestrations.
            'EXECUTE ON FUNCTION list_withheld, list_stopped, list_resumable, list_contexts, begin_suspended, find_instances,
                                 open_convoys, close_convoys',
            'SELECT ON SEQUENCE reference_sequence',
            -- To start and stop: these leave alone what is of other applications.
            'EXECUTE ON FUNCTION move_epoch, set_service_state, set_group_state, set_location_enabled, set_application_enabled,
                                 enlist, insert_predicates, unenlist,
                                 keep_versions']
        WHEN 'bodies' THEN ARRAY[
            'EXECUTE ON FUNCTION record_reads, read_messages, read_piece']
            -- Contexts and the track may hold personal values, the track bodies too, of all applications together.
            || CASE WHEN application_name IS NULL
                    THEN ARRAY['SELECT (context) ON message', 'SELECT ON track_personal, track_body, track_few'] END
        WHEN 'edit' THEN ARRAY[
            'EXECUTE ON FUNCTION edit_delivery, insert_fragment, list_withheld',
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
