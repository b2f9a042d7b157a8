-- Who did what: a row for each act of a person, written in the transaction of the act.

CREATE TABLE audit (
    number         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT clock(),
    database_user  text        NOT NULL DEFAULT session_user,
    person         text        NOT NULL,
    action         text        NOT NULL,
    application    text,
    target         text        NOT NULL,
    before         jsonb,
    after          jsonb,
    reason         text,
    outcome        text        NOT NULL
);
CREATE INDEX ON audit (at);
COMMENT ON TABLE audit IS 'the acts of people: rows are only ever added';
COMMENT ON COLUMN audit.database_user IS 'as whom the session was opened: nobody chooses it';
COMMENT ON COLUMN audit.person IS 'who the session says it acts for, as the setting crossdock.person has it';
COMMENT ON COLUMN audit.reason IS 'why, as the setting crossdock.reason has it';

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE insufficient_privilege USING MESSAGE = 'rows of the audit are neither changed nor deleted';
END $$;
CREATE TRIGGER rows_are_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

CREATE FUNCTION audit(
    action text, target text, before jsonb, after jsonb, outcome text, application text DEFAULT NULL,
    service_number integer DEFAULT NULL
) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp
BEGIN ATOMIC
    INSERT INTO audit (person, action, application, target, before, after, reason, outcome)
    SELECT coalesce(nullif(current_setting('crossdock.person', true), ''), session_user), $1,
           coalesce($6, (SELECT service.application FROM service WHERE service.id = $7)), $2, $3, $4,
           nullif(current_setting('crossdock.reason', true), ''), $5
    RETURNING number;
END;
REVOKE ALL ON FUNCTION audit FROM PUBLIC;
COMMENT ON FUNCTION audit IS 'record an act, in its transaction: the only way to write the audit for whoever does not own the MessageBox';

CREATE FUNCTION access_role(what text, application_name text DEFAULT NULL) RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    -- By a digest: the name of an application may be too long for a role.
    SELECT format('crossdock_%s_%s', to_hex(number), what) || coalesce('_' || left(md5(application_name), 12), '') FROM box;
END;
COMMENT ON FUNCTION access_role IS 'the name of the role of people who may do something, for all applications or for one; there may be none of that name';

CREATE FUNCTION may_do(what text, application_name text) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER')
        OR coalesce(pg_has_role(session_user, to_regrole(access_role(what))::oid, 'MEMBER'), false)
        OR coalesce(pg_has_role(session_user, to_regrole(access_role(what, application_name))::oid, 'MEMBER'), false);
END;
COMMENT ON FUNCTION may_do IS 'whether whoever opened the session may do something to what belongs to an application: as owner, or as member of a role';

CREATE FUNCTION may_read(message_number uuid) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT may_do('bodies', NULL)
        OR EXISTS (SELECT
                     FROM suspended
                     JOIN service ON service.id = suspended.service_id
                    WHERE suspended.message_id = message_number AND may_do('bodies', service.application));
END;
COMMENT ON FUNCTION may_read IS 'whether whoever opened the session may read the body of a message: of any, or of one that is suspended for an application';

CREATE TABLE original (
    message_id  uuid        NOT NULL,
    edited_id   uuid        NOT NULL,
    host_id     smallint    NOT NULL,
    sequence    bigint      NOT NULL,
    service_id  integer     NOT NULL,
    edited_at   timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (edited_id)
);
CREATE INDEX ON original (message_id);
CREATE INDEX ON original (edited_at);
COMMENT ON TABLE original IS 'messages of which somebody edited a delivery: each row is a reference, so that they are kept for a while';

-- What an operator may change is of the applications it is for. The owner is not concerned, and everybody sees everything
-- that is granted.
ALTER TABLE service ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON service FOR SELECT USING (true);
CREATE POLICY operators_change_their_own ON service FOR UPDATE USING (may_do('operator', application));
ALTER TABLE send_port_group ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON send_port_group FOR SELECT USING (true);
CREATE POLICY operators_change_their_own ON send_port_group FOR UPDATE USING (may_do('operator', application));
ALTER TABLE receive_location ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON receive_location FOR SELECT USING (true);
CREATE POLICY operators_change_their_own ON receive_location FOR UPDATE USING (may_do('operator', application));
ALTER TABLE subscription ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON subscription FOR SELECT USING (true);
CREATE POLICY operators_change_their_own ON subscription
    USING (EXISTS (SELECT FROM service WHERE service.id = subscription.service_id AND may_do('operator', service.application)));
ALTER TABLE predicate ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON predicate FOR SELECT USING (true);
CREATE POLICY operators_change_their_own ON predicate
    USING (EXISTS (SELECT
                     FROM subscription
                     JOIN service ON service.id = subscription.service_id
                    WHERE subscription.id = predicate.subscription_id AND may_do('operator', service.application)));
CREATE POLICY viewers_see_everybody ON instance_subscription FOR SELECT
    USING ((SELECT pg_has_role(current_user, to_regrole(access_role('viewer'))::oid, 'MEMBER')));

CREATE FUNCTION create_access_role(what text, application_name text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
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
            -- To start and stop: policies say which rows.
            'UPDATE (state) ON service, send_port_group',
            'UPDATE (enabled) ON receive_location',
            'UPDATE (epoch, epoch_token, location_token) ON box',
            'INSERT ON epoch_history, subscription_removal',
            'INSERT, UPDATE, DELETE ON subscription',
            'INSERT, DELETE ON predicate',
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
COMMENT ON FUNCTION create_access_role IS 'the role of people who may do something, for all applications or for one; one that is there is brought up to date';

CREATE FUNCTION renew_access_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM create_access_role(access.what, place.application_name)
       FROM unnest(ARRAY['viewer', 'operator', 'bodies', 'edit']) AS access (what),
            (SELECT NULL AS application_name UNION ALL SELECT name FROM application) AS place
      WHERE to_regrole(access_role(access.what, place.application_name)) IS NOT NULL;
END $$;
COMMENT ON FUNCTION renew_access_roles IS 'functions that were made anew are granted again';

-- People list what is suspended by page, the oldest first.
CREATE INDEX ON suspended (sequence);

-- The role of a host may record what it publishes by hand.
CREATE OR REPLACE FUNCTION create_host_role(host_name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    host_number smallint;
    role_name text;
    place text;
    allowed text;
BEGIN
    SELECT id, host_role(id) INTO STRICT host_number, role_name FROM host WHERE name = host_name;
    IF to_regrole(role_name) IS NULL THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXECUTE format('COMMENT ON ROLE %I IS %L', role_name, 'may work for the host ' || host_name || ' of one MessageBox');
    END IF;
    -- What an older version granted is taken back; nobody sees the moment between, since all of it is one transaction.
    FOR place IN SELECT format('%I.%I', nspname, relname)
                   FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                  WHERE nspname = 'crossdock' AND relkind IN ('r', 'p', 'v', 'S')
                    AND (NOT relispartition
                         OR relname = ANY (ARRAY(SELECT parent || '_' || host_number
                                                   FROM unnest(ARRAY['queue', 'claimed', 'scheduled', 'suspended', 'instance',
                                                                     'history', 'held', 'timer']) AS parent))) LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', place, role_name);
    END LOOP;
    FOR place IN SELECT oid::regprocedure
                   FROM pg_proc
                  WHERE pronamespace = 'crossdock'::regnamespace AND prosecdef LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %I', place, role_name);
    END LOOP;
    FOR place IN SELECT oid::regprocedure
                   FROM pg_proc
                  WHERE pronamespace = 'crossdock'::regnamespace AND starts_with(proname, format('host_%s_', host_number)) LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', place, role_name);
    END LOOP;
    FOREACH allowed IN ARRAY ARRAY[
        'USAGE ON SCHEMA crossdock',
        -- The routing table, by which every publisher matches; definitions and counts of its own host only.
        'SELECT ON migration, box, host, service_class, property, correlation, reference_log, send_port_group',
        'SELECT ON epoch_history, subscription, subscription_removal, predicate',
        'SELECT (id, name, host_id, class, transport_id, priority, ordered, two_way, state, deployed, group_name, port_id,
                 receives, version, subqueue)
             ON service',
        'SELECT ON service_definition, location_definition, delivery_count, version_definition, track_level',
        -- Messages and references are written and read by functions only, which take nothing on trust.
        'EXECUTE ON FUNCTION publish_few, insert_fragment, find_instances, open_convoys, close_convoys, lock_subscriptions,
                             subqueue_may_go_on',
        -- What people publish by hand under the role of a host is in the audit under their name.
        'EXECUTE ON FUNCTION audit',
        'SELECT ON SEQUENCE reference_sequence',
        'USAGE ON SEQUENCE ' || pg_get_serial_sequence('intake', 'sequence'),
        -- Its instances, and whoever waits in their memory: policies say which rows.
        'SELECT (id, host_id, class, started_at, seen_at, state, in_hand, delivering),
         INSERT (id, host_id, class, machine, process), UPDATE (seen_at, state, in_hand, delivering), DELETE
             ON host_instance',
        'SELECT (id, instance_id, service_id, host_id, correlation_id, priority, bound_to),
         INSERT (instance_id, service_id, host_id, correlation_id, hash, value, bound_to), UPDATE (created_at), DELETE
             ON instance_subscription',
        'SELECT (service_id, host_id, held_by, held_at, claim, blocked_until, blocked_by),
         UPDATE (held_by, held_at, claim, blocked_until, blocked_by, reason) ON subqueue_lease',
        format('SELECT ON queue_%1$s, claimed_%1$s, scheduled_%1$s, suspended_%1$s, instance_%1$s, history_%1$s, held_%1$s, timer_%1$s',
               host_number)
    ] LOOP
        EXECUTE format('GRANT %s TO %I', allowed, role_name);
    END LOOP;
    RETURN role_name;
END $$;
