-- What an attack on the rights of people found. Whoever has a right works by functions only: what everybody routes by changes
-- together with the epoch, a body is read once its record is committed, and nobody takes the id of a message that is to come.

ALTER TABLE box ADD COLUMN moved_by xid8;
COMMENT ON COLUMN box.moved_by IS 'the transaction that moved the epoch last';

ALTER TABLE audit ADD COLUMN transaction xid8;
ALTER TABLE audit ALTER COLUMN transaction SET DEFAULT pg_current_xact_id();
COMMENT ON COLUMN audit.transaction IS 'in which it was written: what must be recorded before it happens looks for a committed one';

CREATE FUNCTION ledger_number(id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint;
COMMENT ON FUNCTION ledger_number IS 'the number in the ledger that the id of a message or a part begins with';

CREATE FUNCTION labels_of(context json) RETURNS text[] LANGUAGE sql STABLE AS $$
    -- No text of PostgreSQL holds \u0000, and labels have none.
    SELECT ARRAY(SELECT label
                   FROM (SELECT replace(context::text, '\u0000', '\ufffd')::json AS readable WHERE context::text LIKE '%"labels"%')
                        AS found,
                        json_array_elements_text(CASE WHEN json_typeof(found.readable -> 'labels') = 'array'
                                                      THEN found.readable -> 'labels' END) AS label)
$$;
COMMENT ON FUNCTION labels_of IS 'the labels in a context as it is stored';

CREATE FUNCTION epoch_moves() RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(moved_by = pg_current_xact_id_if_assigned(), false) FROM box;
END;
COMMENT ON FUNCTION epoch_moves IS 'whether this transaction has moved the epoch: what everybody routes by changes only then, or a publisher would not hear of it';

DROP POLICY operators_change_their_own ON service;
DROP POLICY operators_change_their_own ON send_port_group;
DROP POLICY operators_change_their_own ON receive_location;

DROP POLICY everybody_opens_what_is_shared ON saved_view;

CREATE VIEW shown_filter AS
    SELECT at, segment, CASE WHEN (SELECT sees_personal()) THEN filter END AS filter FROM track_personal;
COMMENT ON VIEW shown_filter IS 'the filters of personal values as people may see them: one tells whether a value that somebody guesses was there';

CREATE OR REPLACE FUNCTION insert_fragment(part_number uuid, fragment_number integer, fragment_body bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM part WHERE id = part_number)
       OR (EXISTS (SELECT FROM intake WHERE sequence = ledger_number(part_number))
           AND NOT pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER')) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a part that is stored does not grow, nor one of a source in the ledger';
    END IF;
    INSERT INTO fragment (part_id, number, body) VALUES (part_number, fragment_number, fragment_body);
END $$;

-- Answers that hold an API token in clear text are not kept any more.
DELETE FROM api_answer WHERE position('"token":"crossdock_'::bytea IN content) > 0;

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
            'SELECT (at, transaction, publisher, epoch, message_ids, references_to, subscriptions, exceptions, origins,
                     first_reference, last_reference) ON track_few',
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
