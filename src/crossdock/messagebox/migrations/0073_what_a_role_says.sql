-- What the role of a host can say by psql, and what it cannot any more.

-- When a lease was taken is written by a function. A time at the end of the calendar moved along with its port, and no host
-- instance of the other host took the lease of any port: there is none later.
UPDATE subqueue_lease SET held_at = '-infinity' WHERE held_at > '9999-01-01Z';

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
         UPDATE (held_by, blocked_until, blocked_by, reason) ON subqueue_lease',
        format('SELECT ON queue_%1$s, claimed_%1$s, scheduled_%1$s, suspended_%1$s, instance_%1$s, history_%1$s, held_%1$s, timer_%1$s',
               host_number)
    ] LOOP
        EXECUTE format('GRANT %s TO %I', allowed, role_name);
    END LOOP;
    RETURN role_name;
END $$;

CREATE OR REPLACE FUNCTION check_epoch(publishing integer, matched uuid, read_by uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- Another lock, or a snapshot of an hour ago, would let the role of a host give messages to what is gone.
    IF publishing <> 201678093 OR current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE insufficient_privilege USING MESSAGE = 'whoever publishes takes the lock of publishers, and sees what is committed';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(publishing);
    IF NOT EXISTS (SELECT FROM box WHERE epoch_token = matched AND location_token = coalesce(read_by, location_token)) THEN
        RAISE EXCEPTION 'The epoch has moved.' USING ERRCODE = 'CX001';
    END IF;
END $$;
COMMENT ON FUNCTION check_epoch IS 'the last step of publishing, where the answer is not waited for: it fails if the epoch has moved. The number is SUBSCRIPTION_LOCK';

CREATE OR REPLACE FUNCTION publish_few(
    message_ids uuid[], contexts json[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[], sizes bigint[],
    pieces integer[], references_to uuid[], subscriptions integer[], exceptions json, publishing integer, matched uuid,
    read_by uuid, origins json DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
DECLARE
    counted uuid[] := references_to;
    drawn_before bigint := (SELECT last_value FROM reference_sequence);
    -- To search the arrays for each of their members takes the square of their length; plans for many are made for each call.
    many boolean := cardinality(message_ids) > 50;
    given bigint;
BEGIN
    -- Whoever claims messages has their contexts in memory, and large bodies not: what they take is not believed.
    IF pg_column_size(contexts) > 1048576
       AND EXISTS (SELECT FROM unnest(contexts) AS context WHERE octet_length(context::text) > 1048576) THEN
        RAISE program_limit_exceeded USING MESSAGE = 'a context has more than 1,048,576 bytes';
    END IF;
    IF exceptions IS NOT NULL THEN
        counted := counted || ARRAY(SELECT reference.message_id
                                      FROM unnest(ARRAY['queued', 'activated', 'stopped', 'suspended']) AS kind,
                                           json_to_recordset(exceptions -> kind) AS reference (message_id uuid));
    END IF;
    -- First something is written, and the transaction has its number, before the references draw theirs. A message is stored
    -- with the number of references that are written here.
    IF many THEN
        EXECUTE 'INSERT INTO message (id, context, part_count, parts, reference_count)
                 SELECT message.id, message.context, coalesce(cardinality(own.parts), 0), coalesce(own.parts, ''{}''),
                        coalesce(given.count, 0)
                   FROM unnest($1, $2) AS message (id, context)
                   LEFT JOIN (SELECT part.message_id, array_agg(part.id ORDER BY part.number) AS parts
                                FROM unnest($3, $4) WITH ORDINALITY AS part (message_id, id, number)
                               GROUP BY part.message_id) AS own ON own.message_id = message.id
                   LEFT JOIN (SELECT reference.id, count(*)
                                FROM unnest($5) AS reference (id)
                               GROUP BY reference.id) AS given ON given.id = message.id'
          USING message_ids, contexts, part_of, part_ids, counted;
    ELSE
        INSERT INTO message (id, context, part_count, parts, reference_count)
        SELECT message.id, message.context, cardinality(own.parts), own.parts, cardinality(array_positions(counted, message.id))
          FROM unnest(message_ids, contexts) AS message (id, context)
         CROSS JOIN LATERAL (SELECT ARRAY(SELECT part.id
                                            FROM unnest(part_of, part_ids) WITH ORDINALITY AS part (message_id, id, number)
                                           WHERE part.message_id = message.id
                                           ORDER BY part.number) AS parts) AS own;
    END IF;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT part.id, part.name, part.body, coalesce(length(part.body), part.size), coalesce(part.pieces, 0)
      FROM unnest(part_ids, names, bodies, sizes, pieces) AS part (id, name, body, size, pieces);
    IF many THEN
        EXECUTE 'INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id)
                 SELECT subscription.host_id, service.subqueue, subscription.priority, reference.message_id, subscription.id,
                        subscription.service_id
                   FROM unnest($1, $2) WITH ORDINALITY AS reference (message_id, subscription_id, place)
                   JOIN subscription ON subscription.id = reference.subscription_id
                   JOIN service ON service.id = subscription.service_id
                  WHERE reference.message_id IN (SELECT unnest($3))
                  ORDER BY reference.place'
          USING references_to, subscriptions, message_ids;
    ELSE
        -- Each is looked up by itself: a plan that was made when there were few subscriptions would else read them all. And the
        -- arrays are hidden in (SELECT ...) and array_position: if PostgreSQL saw how short they are, it would make a new plan for
        -- each call, which takes longer than the insert.
        INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id)
        SELECT subscription.host_id, service.subqueue, subscription.priority, reference.message_id, subscription.id,
               subscription.service_id
          FROM unnest((SELECT references_to), subscriptions) AS reference (message_id, subscription_id)
         CROSS JOIN LATERAL (SELECT id, host_id, priority, service_id
                               FROM subscription
                              WHERE id = reference.subscription_id
                              LIMIT 1) AS subscription
         CROSS JOIN LATERAL (SELECT subqueue
                               FROM service
                              WHERE id = subscription.service_id
                              LIMIT 1) AS service
         WHERE array_position(message_ids, reference.message_id) IS NOT NULL;
    END IF;
    GET DIAGNOSTICS given = ROW_COUNT;
    IF exceptions IS NOT NULL THEN
        PERFORM publish_exceptions(exceptions);
    END IF;
    PERFORM check_epoch(publishing, matched, read_by);
    -- From here on nothing that was matched can have changed. What the publisher says is held against our tables.
    IF exceptions IS NOT NULL THEN
        PERFORM check_exceptions(exceptions, message_ids, session_user);
    END IF;
    IF array_to_string(contexts, '') LIKE '%"labels"%' THEN
        IF EXISTS (SELECT
                     FROM (SELECT reference.message_id, subscription.host_id
                             FROM unnest(references_to, subscriptions) AS reference (message_id, subscription_id)
                             JOIN subscription ON subscription.id = reference.subscription_id
                            UNION ALL
                           SELECT reference.message_id, waiting.host_id
                             FROM json_to_recordset(exceptions -> 'queued') AS reference (message_id uuid, subscription_id bigint)
                             JOIN instance_subscription AS waiting ON waiting.id = reference.subscription_id
                            UNION ALL
                           SELECT begun.message_id, subscription.host_id
                             FROM json_to_recordset(exceptions -> 'activated') AS begun (message_id uuid, subscription_id integer)
                             JOIN subscription ON subscription.id = begun.subscription_id) AS given
                    WHERE why_withheld(given.message_id, given.host_id) IS NOT NULL) THEN
            RAISE insufficient_privilege USING MESSAGE = 'a host is given a message whose labels it lacks';
        END IF;
    END IF;
    -- References that were given to nobody are not tracked: a role can name millions of them, which compress to nothing.
    IF given IS DISTINCT FROM cardinality(references_to) OR given IS DISTINCT FROM cardinality(subscriptions) THEN
        SELECT coalesce(array_agg(reference.message_id ORDER BY reference.place), '{}'),
               coalesce(array_agg(reference.subscription_id ORDER BY reference.place), '{}')
          INTO references_to, subscriptions
          FROM unnest(references_to, subscriptions) WITH ORDINALITY AS reference (message_id, subscription_id, place)
          JOIN subscription ON subscription.id = reference.subscription_id
         WHERE reference.message_id IN (SELECT unnest(message_ids));
    END IF;
    -- Else the arguments as they are: whatever was wrong with them has been refused by now.
    IF EXISTS (SELECT FROM receive_location WHERE track <> 'events') OR EXISTS (SELECT FROM service WHERE track <> 'events') THEN
        PERFORM track_some(message_ids, contexts, part_ids, bodies, references_to, subscriptions, exceptions, origins,
                           drawn_before);
    ELSIF message_ids <> '{}' THEN
        INSERT INTO track_few (epoch, message_ids, contexts, references_to, subscriptions, exceptions, origins,
                               first_reference, last_reference)
        VALUES ((SELECT epoch FROM box), message_ids, contexts, references_to, subscriptions, exceptions, origins,
                drawn_before, (SELECT last_value FROM reference_sequence));
    END IF;
END $$;
