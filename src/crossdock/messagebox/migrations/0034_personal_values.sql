-- Viewers see personal values and the tokens of requests no longer: they read views, which mask them. Nearest misses that were
-- worked out with personal values are worked out anew, without.

CREATE FUNCTION sees_personal() RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT may_do('bodies', NULL);
END;
COMMENT ON FUNCTION sees_personal IS 'whether whoever opened the session may read personal values: as owner, or with the right bodies for all applications';

CREATE FUNCTION hidden_members() RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    -- As _MEMBER in track_segment.py: a member of a context whose value is a text, or a text with its type.
    SELECT format('([{,]"(?:%s)":)(?:"(?:[^"\\]|\\.)*"|\{[^{}]*\})', string_agg(replace(name, '.', '\.'), '|'))
      FROM (SELECT name FROM property WHERE personal UNION ALL SELECT 'BTS.EpmRRCorrelationToken') AS hidden;
END;
COMMENT ON FUNCTION hidden_members IS 'a pattern for what nobody is shown of a context: personal values, and the tokens by which requests are answered';

CREATE VIEW shown_message AS
    SELECT id, created_at, parts,
           CASE WHEN (SELECT sees_personal()) THEN context::text
                ELSE regexp_replace(context::text, (SELECT hidden_members()), '\1"***"', 'g') END AS context
      FROM message;
COMMENT ON VIEW shown_message IS 'messages as people may see them: personal values and tokens are masked, unless the right bodies is there';

CREATE VIEW shown_few AS
    SELECT at, transaction, publisher, epoch, message_ids,
           CASE WHEN (SELECT sees_personal()) THEN ARRAY(SELECT unnest(contexts)::text)
                ELSE ARRAY(SELECT regexp_replace(context::text, (SELECT hidden_members()), '\1"***"', 'g')
                             FROM unnest(contexts) AS context) END AS contexts,
           references_to, subscriptions, exceptions, origins, first_reference, last_reference
      FROM track_few;
COMMENT ON VIEW shown_few IS 'the same of what is not packed yet';

CREATE VIEW shown_waiting AS
    SELECT waiting.id, waiting.instance_id, waiting.host_id, waiting.correlation_id,
           ARRAY(SELECT CASE WHEN pair.property = 'BTS.EpmRRCorrelationToken'
                               OR EXISTS (SELECT FROM property WHERE property.name = pair.property AND property.personal)
                             THEN '***' ELSE pair.value END
                   FROM unnest(correlation.property, waiting.value) WITH ORDINALITY AS pair (property, value, place)
                  WHERE pair.property IS NOT NULL AND pair.value IS NOT NULL
                  ORDER BY pair.place) AS value
      FROM instance_subscription AS waiting
      JOIN correlation ON correlation.id = waiting.correlation_id;
COMMENT ON VIEW shown_waiting IS 'by which values running instances wait, as everybody may see them: personal values and tokens are masked';

CREATE OR REPLACE FUNCTION create_access_role(what text, application_name text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    role_name text := access_role(what, application_name);
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
            'EXECUTE ON FUNCTION audit']
        WHEN 'operator' THEN ARRAY[
            'EXECUTE ON FUNCTION resume_deliveries, terminate_deliveries, resume_stopped, resume_instances, cancel_instances',
            -- What is resumed begins or joins instances of orchestrations.
            'EXECUTE ON FUNCTION list_stopped, list_resumable, begin_suspended, find_instances, open_convoys, close_convoys',
            'SELECT (context) ON message',
            'SELECT ON SEQUENCE reference_sequence',
            -- To start and stop: policies say which rows.
            'UPDATE (state) ON service, send_port_group',
            'UPDATE (enabled) ON receive_location',
            'UPDATE (epoch, epoch_token, location_token) ON box',
            'INSERT ON epoch_history, subscription_removal',
            'INSERT, UPDATE, DELETE ON subscription',
            'INSERT, DELETE ON predicate',
            'SELECT ON SEQUENCE reference_sequence',
            'EXECUTE ON FUNCTION keep_versions']
        WHEN 'bodies' THEN ARRAY[
            'EXECUTE ON FUNCTION read_messages, read_piece',
            'SELECT (context) ON message',
            -- The track may hold bodies and personal values.
            'SELECT ON history, track_personal, track_body, track_few']
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
    IF what = 'viewer' THEN -- which could see all of them before
        EXECUTE format('REVOKE SELECT ON message, instance_subscription, track_few FROM %I', role_name);
    END IF;
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

UPDATE suspended SET reported = false WHERE kind = 'unrouted' AND EXISTS (SELECT FROM property WHERE personal);
DELETE FROM routing_failure WHERE EXISTS (SELECT FROM property WHERE personal);
