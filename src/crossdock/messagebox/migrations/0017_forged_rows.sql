-- A row that nobody wrote in good faith must not stop a host, and what blocks a line may be at a host that its service has
-- left.
CREATE FUNCTION line_may_go_on(ordered_service integer, blocking bigint) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
BEGIN ATOMIC
    -- At every host: what blocks a line may be at one that the service has left since.
    SELECT CASE WHEN blocking > 0
                THEN NOT EXISTS (SELECT
                                   FROM host
                                   JOIN suspended ON suspended.host_id = host.id AND suspended.sequence = blocking)
                ELSE NOT EXISTS (SELECT
                                   FROM claimed
                                   JOIN service ON service.id = claimed.service_id
                                  WHERE coalesce(service.port_id, service.id) = ordered_service AND claimed.line = 0)
                 AND NOT EXISTS (SELECT
                                   FROM scheduled
                                   JOIN service ON service.id = scheduled.service_id
                                  WHERE coalesce(service.port_id, service.id) = ordered_service AND scheduled.line = 0)
           END;
END;
REVOKE ALL ON FUNCTION line_may_go_on FROM PUBLIC;
COMMENT ON FUNCTION line_may_go_on IS 'whether what blocks an ordered line is no longer there: a suspended reference, or with 0 what began before it was ordered';

CREATE OR REPLACE FUNCTION why_withheld(message_number uuid, host_number smallint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('The host %s lacks the label %s of this message. Give it the label, or give the port another host; then '
                  'resume the message.', host.name, string_agg(label, ', ' ORDER BY label))
      FROM message, host,
           -- No text of PostgreSQL holds \u0000, and labels have none: whatever stands for it, they stay as they are.
           LATERAL (SELECT CASE WHEN context::text LIKE '%"labels"%'
                                THEN replace(context::text, '\u0000', '\ufffd')::json -> 'labels' END AS labels) AS found,
           json_array_elements_text(CASE WHEN json_typeof(found.labels) = 'array' THEN found.labels END) AS label
     WHERE message.id = message_number AND host.id = host_number AND label <> ALL (host.labels)
     GROUP BY host.name
$$;

CREATE OR REPLACE FUNCTION count_express(
    locations integer[], received integer[], published integer[], unrouted integer[], suspended integer[]
) RETURNS void LANGUAGE sql SECURITY DEFINER
BEGIN ATOMIC
    INSERT INTO publication (intake_sequence, range_start, location_id, received, published, unrouted, suspended)
    SELECT -nextval('express_sequence'), 0, counted.*
      FROM unnest(locations, received, published, unrouted, suspended) AS counted (location, received, published, unrouted, suspended)
      JOIN receive_location ON receive_location.id = counted.location
     WHERE receive_location.host_id = ANY (own_hosts(session_user))
       AND least(counted.published, counted.unrouted, counted.suspended) >= 0;
END;

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
                  WHERE nspname = 'crossdock' AND relkind IN ('r', 'p', 'v', 'S') AND NOT relispartition LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', place, role_name);
    END LOOP;
    FOREACH allowed IN ARRAY ARRAY[
        'USAGE ON SCHEMA crossdock',
        -- The routing table, by which every publisher matches; definitions and counts of its own host only.
        'SELECT ON migration, box, host, service_class, property, correlation, reference_log, send_port_group',
        'SELECT ON epoch_history, subscription, subscription_removal, predicate',
        'SELECT (id, name, host_id, class, transport_id, priority, ordered, two_way, state, deployed, group_name, port_id)
             ON service',
        'SELECT ON service_definition, location_definition, delivery_count',
        -- Publishing: it writes to the queues of every host, by the name of the parent.
        'SELECT (id, context, part_count, parts), INSERT (id, context, part_count, parts, given) ON message',
        'SELECT (id, name, body, size, fragments), INSERT (id, name, body, size, fragments) ON part',
        'SELECT, INSERT ON fragment',
        'INSERT ON queue, scheduled, refusal, message_ref_log_1, message_ref_log_2',
        'INSERT (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt, reason, suspended_at,
                 instance_id, line) ON suspended',
        'INSERT (service_id, count, delivered_at) ON delivery',
        'EXECUTE ON FUNCTION count_express, line_may_go_on',
        'USAGE, SELECT ON SEQUENCE reference_sequence',
        'USAGE ON SEQUENCE ' || pg_get_serial_sequence('intake', 'sequence'),
        -- Its instances, and whoever waits in their memory: policies say which rows.
        'SELECT (id, host_id, class, started_at, seen_at, state, in_hand, delivering),
         INSERT (id, host_id, class, machine, process), UPDATE (seen_at, state, in_hand, delivering), DELETE
             ON host_instance',
        'SELECT (id, instance_id, service_id, host_id, correlation_id, hash, priority, bound_to),
         INSERT (instance_id, service_id, host_id, correlation_id, hash, value, bound_to), UPDATE (created_at), DELETE
             ON instance_subscription',
        'SELECT (service_id, host_id, held_by, held_at, blocked_until, blocked_by),
         UPDATE (held_by, held_at, blocked_until, blocked_by, reason) ON ordered_line',
        format('SELECT, INSERT, UPDATE, DELETE ON queue_%1$s, claimed_%1$s, scheduled_%1$s, suspended_%1$s', host_number)
    ] LOOP
        EXECUTE format('GRANT %s TO %I', allowed, role_name);
    END LOOP;
    RETURN role_name;
END $$;
