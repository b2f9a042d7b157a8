-- The role of a host is a boundary, as far as grants go: no definitions of other hosts, no rows of the ledger or of
-- publications, nothing of other hosts to change. Roles that are there are brought up to date after the last migration.
CREATE FUNCTION host_role(host_number smallint) RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    -- By number: a name may be too long for a role, or the same as another's after it has been cut.
    SELECT format('crossdock_%s_host_%s', to_hex(number), host_number) FROM box;
END;
COMMENT ON FUNCTION host_role IS 'the name of the role that may work for a host; there may be none of that name';

CREATE FUNCTION own_hosts(who name) RETURNS smallint[] LANGUAGE sql STABLE
BEGIN ATOMIC
    -- The name as host_role gives it: to call that for each host takes several times as long.
    SELECT array_agg(host.id)
      FROM host, box
     WHERE pg_has_role(who, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER')
        OR coalesce(pg_has_role(who, to_regrole(format('crossdock_%s_host_%s', to_hex(box.number), host.id))::oid, 'MEMBER'),
                    false);
END;
COMMENT ON FUNCTION own_hosts IS 'the hosts a database user may work for: all for the owner of the MessageBox';

-- What a host role may change is its own; whom publishers give messages to, and who lives, everybody has to see. A policy
-- asks once in a statement, not for each row, and it does not concern the owner.
ALTER TABLE host_instance ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_instances ON host_instance USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[]));
CREATE POLICY everybody_is_seen ON host_instance FOR SELECT USING (true);

ALTER TABLE instance_subscription ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_subscriptions ON instance_subscription
    USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[]));
CREATE POLICY everybody_is_seen ON instance_subscription FOR SELECT USING (true);
-- A publisher locks whom it gives a message to; that takes the right to change it, and nothing may be changed.
CREATE POLICY everybody_is_locked ON instance_subscription FOR UPDATE USING (true) WITH CHECK (false);

ALTER TABLE ordered_line ENABLE ROW LEVEL SECURITY;
-- A service may have moved while an instance held its line: the instance still has to give it up.
CREATE POLICY own_lines ON ordered_line FOR UPDATE
    USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[])
           OR held_by IN (SELECT id FROM host_instance
                           WHERE host_id = ANY ((SELECT own_hosts(current_user))::smallint[])))
    WITH CHECK (true);
CREATE POLICY everybody_is_seen ON ordered_line FOR SELECT USING (true);

CREATE VIEW service_definition WITH (security_barrier) AS
SELECT id, host_id, class,
       CASE WHEN host_id = ANY ((SELECT own_hosts(current_user))::smallint[]) THEN definition END AS definition
  FROM service;
COMMENT ON VIEW service_definition IS 'what a process needs to send: definitions may hold secrets, and only those of its own hosts are shown';

CREATE VIEW location_definition WITH (security_barrier) AS
SELECT id, host_id, enabled, definition
  FROM receive_location
 WHERE host_id = ANY ((SELECT own_hosts(current_user))::smallint[]);
COMMENT ON VIEW location_definition IS 'what a process needs to receive, of its own hosts';

CREATE VIEW delivery_count WITH (security_barrier) AS
SELECT service.host_id, service.name, sum(done.count)::bigint AS count
  FROM service
  JOIN (SELECT service_id, count FROM delivery
         UNION ALL
        SELECT service_id, count FROM delivery_total) AS done ON done.service_id = service.id
 WHERE service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[])
 GROUP BY service.id;
COMMENT ON VIEW delivery_count IS 'how many references were delivered for each service of its own hosts';

CREATE FUNCTION count_express(
    locations integer[], received integer[], published integer[], unrouted integer[], suspended integer[]
) RETURNS void LANGUAGE sql SECURITY DEFINER
BEGIN ATOMIC
    INSERT INTO publication (intake_sequence, range_start, location_id, received, published, unrouted, suspended)
    SELECT -nextval('express_sequence'), 0, counted.*
      FROM unnest(locations, received, published, unrouted, suspended) AS counted (location)
      JOIN receive_location ON receive_location.id = counted.location
     WHERE receive_location.host_id = ANY (own_hosts(session_user));
END;
REVOKE ALL ON FUNCTION count_express FROM PUBLIC;
COMMENT ON FUNCTION count_express IS 'count what was received without a source in the ledger: by the owner, since nobody else may write publications';

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
        'EXECUTE ON FUNCTION count_express',
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
COMMENT ON FUNCTION create_host_role IS 'the role of a host: it takes from the queues of that host only, publishes to everybody, and changes nothing of others';

-- Whoever waits for responses correlates by their token. Host roles may not make it known: deploying does, and did not.
INSERT INTO correlation (property)
SELECT ARRAY['BTS.EpmRRCorrelationToken']
 WHERE EXISTS (SELECT FROM service WHERE class = 'messaging isolated')
    ON CONFLICT DO NOTHING;
UPDATE box SET epoch = epoch + 1, epoch_token = gen_random_uuid();
