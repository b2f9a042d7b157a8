-- The role of a host works by functions: it writes and reads no message and no reference in any other way, and the functions
-- take hosts, services and counts from our tables. Each host has functions of its own for its queues; they are made of the
-- statements of the code, whose digest the box keeps.
ALTER TABLE box ADD COLUMN functions text NOT NULL DEFAULT '';
COMMENT ON COLUMN box.functions IS 'the digest of the statements of which the functions of the hosts were made';
DROP FUNCTION publish_few;
DROP FUNCTION publish_exceptions;
DROP FUNCTION drop_references;
DROP FUNCTION create_host_role;
DROP FUNCTION lock_subscriptions;

CREATE FUNCTION create_host_role(host_name text) RETURNS text LANGUAGE plpgsql AS $$
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
                    AND (NOT relispartition OR relname IN ('queue_' || host_number, 'claimed_' || host_number,
                                                           'scheduled_' || host_number, 'suspended_' || host_number)) LOOP
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
        'SELECT (id, name, host_id, class, transport_id, priority, ordered, two_way, state, deployed, group_name, port_id)
             ON service',
        'SELECT ON service_definition, location_definition, delivery_count',
        -- Messages and references are written and read by functions only, which take nothing on trust.
        'EXECUTE ON FUNCTION publish_few, insert_fragment, find_instances, lock_subscriptions, subqueue_may_go_on',
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
        format('SELECT ON queue_%1$s, claimed_%1$s, scheduled_%1$s, suspended_%1$s', host_number)
    ] LOOP
        EXECUTE format('GRANT %s TO %I', allowed, role_name);
    END LOOP;
    RETURN role_name;
END $$;
COMMENT ON FUNCTION create_host_role IS 'the role of a host: it takes from the queues of that host only, by functions made for it; it publishes to everybody, and reads and changes nothing of others';

CREATE FUNCTION publish_exceptions(exceptions json) RETURNS void LANGUAGE plpgsql STRICT AS $$
BEGIN
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id, instance_id)
    SELECT waiting.host_id, -coalesce(waiting.bound_to, 0), waiting.priority, reference.message_id, waiting.id,
           waiting.service_id, waiting.instance_id
      FROM json_to_recordset(exceptions -> 'queued') AS reference (message_id uuid, subscription_id bigint, hash uuid)
      JOIN instance_subscription AS waiting ON waiting.id = reference.subscription_id AND waiting.hash = reference.hash;
    INSERT INTO suspended (host_id, kind, code, message_id, subscription_id, service_id, priority, reason)
    SELECT subscription.host_id, 'stopped', reference.code, reference.message_id, subscription.id, subscription.service_id,
           subscription.priority, reference.reason
      FROM json_to_recordset(exceptions -> 'stopped')
           AS reference (code text, message_id uuid, subscription_id bigint, reason text)
      JOIN subscription ON subscription.id = reference.subscription_id;
    INSERT INTO suspended (host_id, kind, code, message_id, reason)
    SELECT *
      FROM json_to_recordset(exceptions -> 'suspended')
           AS reference (host_id smallint, kind text, code text, message_id uuid, reason text);
    INSERT INTO refusal (message_id, subscription_id, service_id, host_id, labels)
    SELECT *
      FROM json_to_recordset(exceptions -> 'refused')
           AS reference (message_id uuid, subscription_id bigint, service_id integer, host_id smallint, labels text[]);
    INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value, bound_to)
    SELECT *
      FROM json_to_recordset(exceptions -> 'awaited')
           AS waiting (instance_id uuid, service_id integer, host_id smallint, correlation_id integer, hash uuid,
                       value text[], bound_to integer);
    PERFORM count_express(array_agg(location), array_agg(published + unrouted + suspended), array_agg(published),
                          array_agg(unrouted), array_agg(suspended))
       FROM json_to_recordset(exceptions -> 'received')
            AS counted (location integer, published integer, unrouted integer, suspended integer);
END $$;
COMMENT ON FUNCTION publish_exceptions IS 'what publishing writes besides messages and references from the index: references of running instances, what is suspended or refused, who waits for a response, counts of locations';

CREATE FUNCTION check_exceptions(exceptions json, message_ids uuid[], publisher name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT
                 FROM unnest(ARRAY['queued', 'stopped', 'suspended', 'refused']) AS kind,
                      json_to_recordset(exceptions -> kind) AS reference (message_id uuid)
                WHERE reference.message_id <> ALL (message_ids)) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a reference to a message that is not published here';
    END IF;
    -- Who waits elsewhere was locked when it was found, and a port that is not stopped would get its message at no time.
    IF EXISTS (SELECT
                 FROM json_to_recordset(exceptions -> 'stopped') AS reference (subscription_id bigint)
                WHERE NOT EXISTS (SELECT
                                    FROM subscription JOIN service ON service.id = subscription.service_id
                                   WHERE subscription.id = reference.subscription_id AND service.state = 'stopped')) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a message is suspended for a port that is not stopped';
    END IF;
    IF EXISTS (SELECT
                 FROM json_to_recordset(exceptions -> 'suspended') AS reference (host_id smallint)
                WHERE (reference.host_id = ANY (own_hosts(publisher))) IS NOT TRUE)
       OR EXISTS (SELECT
                    FROM json_to_recordset(exceptions -> 'awaited') AS waiting (service_id integer, host_id smallint)
                   WHERE NOT EXISTS (SELECT
                                       FROM service
                                      WHERE service.id = waiting.service_id
                                        AND service.host_id = waiting.host_id
                                        AND service.host_id = ANY (own_hosts(publisher)))) THEN
        RAISE insufficient_privilege USING MESSAGE = 'something is suspended, or waits, at a host of others';
    END IF;
END $$;
COMMENT ON FUNCTION check_exceptions IS 'whether a publisher may write these: about messages it publishes, and at its own hosts';

CREATE FUNCTION publish_few(
    message_ids uuid[], contexts json[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[], sizes bigint[],
    pieces integer[], references_to uuid[], subscriptions integer[], exceptions json, publishing integer, matched uuid,
    read_by uuid
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
BEGIN
    -- First something is written, and the transaction has its number, before the references draw theirs. A message is stored
    -- with the number of references that are written here.
    INSERT INTO message (id, context, part_count, parts, reference_count)
    SELECT message.id, message.context, cardinality(own.parts), own.parts, coalesce(given.count, 0)
      FROM unnest(message_ids, contexts) AS message (id, context)
      LEFT JOIN (SELECT reference.id, count(*)
                   FROM (SELECT unnest(references_to)
                          UNION ALL
                         SELECT reference.message_id
                           FROM unnest(CASE WHEN exceptions IS NOT NULL
                                            THEN ARRAY['queued', 'stopped', 'suspended'] END) AS kind,
                                json_to_recordset(exceptions -> kind) AS reference (message_id uuid)) AS reference (id)
                  GROUP BY reference.id) AS given USING (id)
     CROSS JOIN LATERAL (SELECT ARRAY(SELECT part.id
                                        FROM unnest(part_of, part_ids) WITH ORDINALITY AS part (message_id, id, number)
                                       WHERE part.message_id = message.id
                                       ORDER BY part.number) AS parts) AS own;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT part.id, part.name, part.body, coalesce(part.size, length(part.body)), coalesce(part.pieces, 0)
      FROM unnest(part_ids, names, bodies, sizes, pieces) AS part (id, name, body, size, pieces);
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id)
    SELECT subscription.host_id, CASE WHEN service.ordered THEN coalesce(service.port_id, service.id) ELSE 0 END,
           subscription.priority, reference.message_id, subscription.id, subscription.service_id
      FROM unnest(references_to, subscriptions) AS reference (message_id, subscription_id)
      JOIN subscription ON subscription.id = reference.subscription_id
      JOIN service ON service.id = subscription.service_id
     WHERE reference.message_id = ANY (message_ids);
    IF exceptions IS NOT NULL THEN
        PERFORM publish_exceptions(exceptions);
    END IF;
    PERFORM check_epoch(publishing, matched, read_by);
    -- From here on nothing that was matched can have changed. What the publisher says is held against our tables.
    IF exceptions IS NOT NULL THEN
        PERFORM check_exceptions(exceptions, message_ids, session_user);
    END IF;
    IF EXISTS (SELECT FROM unnest(contexts) AS context WHERE context::text LIKE '%"labels"%')
       AND EXISTS (SELECT
                     FROM (SELECT reference.message_id, subscription.host_id
                             FROM unnest(references_to, subscriptions) AS reference (message_id, subscription_id)
                             JOIN subscription ON subscription.id = reference.subscription_id
                            UNION ALL
                           SELECT reference.message_id, waiting.host_id
                             FROM json_to_recordset(exceptions -> 'queued') AS reference (message_id uuid, subscription_id bigint)
                             JOIN instance_subscription AS waiting ON waiting.id = reference.subscription_id) AS given
                    WHERE why_withheld(given.message_id, given.host_id) IS NOT NULL) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a host is given a message whose labels it lacks';
    END IF;
END $$;
REVOKE ALL ON FUNCTION publish_few FROM PUBLIC;
COMMENT ON FUNCTION publish_few IS 'a few messages with everything that publishing writes, in one round trip; the only way in for the role of a host';

CREATE FUNCTION insert_fragment(part_number uuid, fragment_number integer, fragment_body bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM part WHERE id = part_number) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a part that is stored does not grow';
    END IF;
    INSERT INTO fragment (part_id, number, body) VALUES (part_number, fragment_number, fragment_body);
END $$;
REVOKE ALL ON FUNCTION insert_fragment FROM PUBLIC;
COMMENT ON FUNCTION insert_fragment IS 'a fragment of a part that is about to be stored';

CREATE FUNCTION drop_references(messages uuid[]) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT message FROM reference_log) = 1 THEN
        INSERT INTO message_ref_log_1 SELECT id, -1 FROM unnest(messages) AS reference (id);
    ELSE
        INSERT INTO message_ref_log_2 SELECT id, -1 FROM unnest(messages) AS reference (id);
    END IF;
    RETURN cardinality(messages);
END $$;
COMMENT ON FUNCTION drop_references IS 'one reference less to each of these messages, in the log that is being written; gives how many';

CREATE FUNCTION lock_subscriptions(sought uuid[], ending uuid[]) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
DECLARE
    waiting record;
BEGIN
    FOR waiting IN SELECT id, false AS ends FROM instance_subscription WHERE hash = ANY (sought) AND instance_id <> ALL (ending)
                    UNION ALL
                   SELECT id, true
                     FROM instance_subscription
                    WHERE instance_id = ANY (ending) AND host_id = ANY (own_hosts(session_user))
                    ORDER BY id LOOP
        IF waiting.ends THEN
            PERFORM FROM instance_subscription WHERE id = waiting.id FOR UPDATE;
        ELSE
            PERFORM FROM instance_subscription WHERE id = waiting.id FOR KEY SHARE;
        END IF;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION lock_subscriptions FROM PUBLIC;
COMMENT ON FUNCTION lock_subscriptions IS 'lock the subscriptions of instances that end, and those that wait by these hashes, in one pass in the order of their ids';

-- A publisher finds whom it gives a message to by a function, which has to be told the hash.
DROP POLICY own_subscriptions ON instance_subscription;
DROP POLICY everybody_is_seen ON instance_subscription;
DROP POLICY everybody_is_locked ON instance_subscription;
CREATE POLICY own_subscriptions ON instance_subscription
    USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[]))
    WITH CHECK (EXISTS (SELECT
                          FROM service
                         WHERE service.id = instance_subscription.service_id
                           AND service.host_id = instance_subscription.host_id
                           AND service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[])));
