-- The console: people who ask through it may have fewer rights than the database user has, and bring tokens of their own.

CREATE FUNCTION within_limit(what text, application_name text) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT person.rights IS NULL
        OR person.rights ?| ARRAY['administrator', what]
        OR coalesce(person.rights ? (what || ':' || application_name), false)
      FROM (SELECT nullif(current_setting('crossdock.limit', true), '')::jsonb AS rights) AS person;
END;
COMMENT ON FUNCTION within_limit IS 'whether the person for whom the session acts may do something: the setting crossdock.limit lists its rights, as operator or operator:application; without it there is no limit';

CREATE OR REPLACE FUNCTION may_do(what text, application_name text) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT within_limit(what, application_name)
       AND (pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER')
            OR coalesce(pg_has_role(session_user, to_regrole(access_role(what))::oid, 'MEMBER'), false)
            OR coalesce(pg_has_role(session_user, to_regrole(access_role(what, application_name))::oid, 'MEMBER'), false));
END;
COMMENT ON FUNCTION may_do IS 'whether whoever opened the session may do something to what belongs to an application: as owner, or as member of a role, and within the limit of the person it acts for';

CREATE TABLE api_token (
    name         text        PRIMARY KEY,
    digest       bytea       NOT NULL UNIQUE,
    rights       text[]      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock(),
    created_by   text        NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz
);
COMMENT ON TABLE api_token IS 'by which programs and people sign in at the console; the token itself is nowhere, only its SHA-256';
COMMENT ON COLUMN api_token.rights IS 'what its bearer may do at most, as operator or operator:application';

CREATE TABLE api_answer (
    person   text        NOT NULL,
    key      text        NOT NULL,
    request  bytea       NOT NULL,
    status   smallint,
    content  bytea,
    headers  jsonb,
    at       timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (person, key)
);
CREATE INDEX ON api_answer (at);
COMMENT ON TABLE api_answer IS 'what the console answered to requests with an Idempotency-Key, for a day; without a status while the request is in progress';

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
            'EXECUTE ON FUNCTION audit, find_token']
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
