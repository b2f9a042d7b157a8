-- The role of a host publishes by this function, however many messages: 2,500 at a time took ten times as long as COPY.

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
    -- The arguments as they are: whatever was wrong with them has been refused by now.
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
