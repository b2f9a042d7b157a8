-- Orchestrations at work: timers of suspended instances are not looked at, and those that end their process are counted.
-- A subscription says which references are older than itself.

ALTER TABLE timer ADD COLUMN asleep boolean NOT NULL DEFAULT false, ADD COLUMN deaths smallint NOT NULL DEFAULT 0;
COMMENT ON COLUMN timer.asleep IS 'its instance is suspended: nobody looks at the timer until that is resumed or cancelled';
COMMENT ON COLUMN timer.deaths IS 'processes that ended with the timer in hand, and while it was tried alone';
UPDATE timer
   SET asleep = true
  FROM instance
 WHERE instance.host_id = timer.host_id AND instance.id = timer.instance_id AND instance.state = 'suspended';
DROP INDEX timer_host_id_due_at_idx;
CREATE INDEX ON timer (host_id, due_at) WHERE NOT asleep;

ALTER TABLE host_instance ADD COLUMN stepping uuid[] NOT NULL DEFAULT '{}',
    ADD COLUMN stepping_alone uuid[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN host_instance.stepping IS 'the instances of orchestrations whose timers it has in hand: no claim says so';
COMMENT ON COLUMN host_instance.stepping_alone IS 'of these the ones that it tries alone, since a dead host instance had them in hand';

ALTER TABLE subscription ADD COLUMN enlisted_after bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN subscription.enlisted_after IS 'the last reference that was drawn before it was enlisted: those up to it are of messages that it was not given';

CREATE OR REPLACE FUNCTION create_access_role(what text, application_name text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    role_name text := access_role(what, application_name);
    allowed text;
    granted text[] := CASE what
        WHEN 'viewer' THEN ARRAY[
            'USAGE ON SCHEMA crossdock',
            -- No definitions, which may hold secrets, no code, and no bodies.
            'SELECT ON migration, box, epoch_history, host, service_class, host_instance, application, property, send_port_group,
                       subscription, subscription_removal, predicate, correlation, instance_subscription, intake, publication,
                       publication_total, queue, claimed, scheduled, suspended, instance, held, timer, convoy, subqueue_lease,
                       delivery, delivery_total, reference_log, message, routing_failure, refusal, audit, original, subscription_version,
                       track_published, track_settled, erased_message, publication_minute, delivery_minute, sample,
                       service_definition',
            'SELECT (id, name, application, host_id, class, transport_id, priority, ordered, two_way, predicate, state, deployed,
                     group_name, port_id, receives, version, subqueue) ON service',
            'SELECT (id, name, application, host_id, enabled, deployed) ON receive_location',
            'SELECT (digest, application, packages, created_at) ON orchestration_version',
            'SELECT (id, name, size, fragments, reference_count) ON part',
            'SELECT (at, transaction, publisher, epoch, message_ids, contexts, references_to, subscriptions, exceptions, origins,
                     first_reference, last_reference) ON track_few',
            'SELECT (at, segment, filter) ON track_personal',
            'EXECUTE ON FUNCTION audit']
        WHEN 'operator' THEN ARRAY[
            'EXECUTE ON FUNCTION resume_deliveries, terminate_deliveries, resume_stopped, resume_instances, cancel_instances',
            -- What is resumed begins or joins instances of orchestrations.
            'EXECUTE ON FUNCTION list_stopped, list_resumable, begin_suspended, find_instances, open_convoys, close_convoys',
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
