-- What happens to messages and references is tracked in the transaction in which it happens.

ALTER TABLE property ADD COLUMN personal boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN property.personal IS 'its values are kept apart in the track, where whoever reads them needs a grant of its own';
ALTER TABLE receive_location
    ADD COLUMN track text NOT NULL DEFAULT 'events',
    ADD CONSTRAINT nothing_events_or_bodies_are_tracked CHECK (track IN ('off', 'events', 'bodies'));
CREATE INDEX ON receive_location (track, id) WHERE track <> 'events';
ALTER TABLE service
    ADD COLUMN track text NOT NULL DEFAULT 'events',
    ADD CONSTRAINT nothing_events_or_bodies_are_tracked CHECK (track IN ('off', 'events', 'bodies'));
CREATE INDEX ON service (track, id) WHERE track <> 'events';

CREATE TYPE message_range AS RANGE (SUBTYPE = uuid);
COMMENT ON TYPE message_range IS 'message ids sort as the ledger does: what is published together is close together';

CREATE SEQUENCE track_segment;

CREATE TABLE track_published (
    at               timestamptz   NOT NULL DEFAULT clock(),
    until            timestamptz   NOT NULL DEFAULT clock(),
    segment          bigint        NOT NULL DEFAULT nextval('track_segment'),
    transaction      bigint        NOT NULL DEFAULT (pg_current_xact_id()::text)::bigint,
    epoch            bigint        NOT NULL,
    application      text,
    labels           text[]        NOT NULL,
    ids              message_range NOT NULL,
    messages         integer       NOT NULL,
    first_reference  bigint        NOT NULL,
    last_reference   bigint        NOT NULL,
    filter           bytea         NOT NULL,
    content          bytea         NOT NULL
) PARTITION BY RANGE (at);
ALTER TABLE track_published ALTER COLUMN filter SET STORAGE EXTERNAL, ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX ON track_published (at);
CREATE INDEX ON track_published USING gist (ids);
CREATE TABLE track_published_rest PARTITION OF track_published DEFAULT;
COMMENT ON TABLE track_published IS 'segments of the track: messages that were published together, with where each came from and to whom it was given';
COMMENT ON COLUMN track_published.until IS 'later than `at` only where a segment was packed from messages of several transactions';
COMMENT ON COLUMN track_published.first_reference IS 'no reference of these messages has a lower number, but for those that were routed again';
COMMENT ON COLUMN track_published.filter IS 'which promoted values occur: a split-block Bloom filter';
COMMENT ON COLUMN track_published.content IS 'messagebox/track_segment.py reads it';

CREATE TABLE track_personal (
    at       timestamptz NOT NULL,
    segment  bigint      NOT NULL,
    filter   bytea       NOT NULL,
    content  bytea       NOT NULL
) PARTITION BY RANGE (at);
ALTER TABLE track_personal ALTER COLUMN filter SET STORAGE EXTERNAL, ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX ON track_personal (segment);
CREATE TABLE track_personal_rest PARTITION OF track_personal DEFAULT;
COMMENT ON TABLE track_personal IS 'the values of personal properties of a segment, which has only their names';

CREATE TABLE track_body (
    at       timestamptz NOT NULL,
    segment  bigint      NOT NULL,
    content  bytea       NOT NULL
) PARTITION BY RANGE (at);
ALTER TABLE track_body ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX ON track_body (segment);
CREATE TABLE track_body_rest PARTITION OF track_body DEFAULT;
COMMENT ON TABLE track_body IS 'the bodies of messages of a segment, where a location or a port wants them kept';

CREATE TABLE track_few (
    at               timestamptz NOT NULL DEFAULT clock(),
    transaction      bigint      NOT NULL DEFAULT (pg_current_xact_id()::text)::bigint,
    publisher        name        NOT NULL DEFAULT session_user,
    epoch            bigint      NOT NULL,
    message_ids      uuid[]      NOT NULL,
    contexts         json[]      NOT NULL,
    references_to    uuid[]      NOT NULL,
    subscriptions    integer[]   NOT NULL,
    exceptions       json,
    origins          json,
    first_reference  bigint      NOT NULL,
    last_reference   bigint      NOT NULL,
    body_of          uuid[],
    bodies           bytea[]
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE track_few ALTER COLUMN contexts SET STORAGE EXTERNAL, ALTER COLUMN bodies SET STORAGE EXTERNAL;
COMMENT ON TABLE track_few IS 'what was published a few at a time, as it was published; a job packs it into segments after a while';
COMMENT ON COLUMN track_few.publisher IS 'the database user: what it says about others is not believed';

CREATE TABLE track_settled (
    at           timestamptz NOT NULL DEFAULT clock(),
    transaction  bigint      NOT NULL DEFAULT (pg_current_xact_id()::text)::bigint,
    host_id      smallint    NOT NULL,
    event        text        NOT NULL,
    code         text,
    reason       text,
    attempt      smallint,
    claimed_at   timestamptz,
    block        bigint      NOT NULL,
    sequence     smallint[]  NOT NULL,
    message_id   uuid[]      NOT NULL,
    service_id   integer[]   NOT NULL,
    instance_id  uuid[]
) PARTITION BY RANGE (at);
-- To compress them would take several times as long as to collect them.
ALTER TABLE track_settled ALTER COLUMN sequence SET STORAGE EXTERNAL, ALTER COLUMN message_id SET STORAGE EXTERNAL,
    ALTER COLUMN service_id SET STORAGE EXTERNAL, ALTER COLUMN instance_id SET STORAGE EXTERNAL;
CREATE INDEX ON track_settled (block);
CREATE TABLE track_settled_rest PARTITION OF track_settled DEFAULT;
COMMENT ON TABLE track_settled IS 'what became of references: a row for each settling statement, event, reason, attempt and claim';
COMMENT ON COLUMN track_settled.block IS 'the number of a reference without its last 12 bits, which are in `sequence`: a row has references of one block';

CREATE VIEW track_level WITH (security_barrier) AS
SELECT 'location' AS kind, id, name, application, track
  FROM receive_location
 WHERE host_id = ANY ((SELECT own_hosts(current_user))::smallint[])
 UNION ALL
SELECT 'service', id, name, application, track
  FROM service
 WHERE track <> 'events' AND host_id = ANY ((SELECT own_hosts(current_user))::smallint[]);
COMMENT ON VIEW track_level IS 'the applications of locations of its own hosts, and what is tracked there and for services';

CREATE FUNCTION track_some(
    message_ids uuid[], contexts json[], part_ids uuid[], part_bodies bytea[], references_to uuid[], subscriptions integer[],
    exceptions json, origins json, drawn_before bigint
) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$ -- a new plan for each call takes longer
DECLARE
    levels text[];
    with_body uuid[];
BEGIN
    -- An origin says of so many messages which location or service they are from; without any they are from nowhere.
    levels := ARRAY(SELECT coalesce(location.track, service.track, 'events')
                      FROM ROWS FROM (json_to_recordset(origins) AS (messages integer, location integer, service integer))
                           WITH ORDINALITY AS origin (messages, location, service, place)
                      LEFT JOIN receive_location AS location ON location.id = origin.location
                      LEFT JOIN service ON service.id = origin.service
                     CROSS JOIN generate_series(1, origin.messages) AS each
                     ORDER BY origin.place, each);
    with_body := ARRAY(SELECT message.id
                         FROM unnest(message_ids, levels) AS message (id, level)
                        WHERE message.level = 'bodies'
                           OR coalesce(message.level, 'events') <> 'off'
                              AND EXISTS (SELECT
                                            FROM unnest(references_to, subscriptions) AS reference (message_id, subscription_id)
                                            JOIN subscription ON subscription.id = reference.subscription_id
                                            JOIN service ON service.id = subscription.service_id AND service.track = 'bodies'
                                           WHERE reference.message_id = message.id));
    INSERT INTO track_few (epoch, message_ids, contexts, references_to, subscriptions, exceptions, origins, first_reference,
                           last_reference, body_of, bodies)
    SELECT (SELECT epoch FROM box), message_ids,
           ARRAY(SELECT CASE WHEN coalesce(message.level, 'events') <> 'off' THEN message.context END
                   FROM unnest(message_ids, contexts, levels) WITH ORDINALITY AS message (id, context, level, place)
                  ORDER BY message.place),
           references_to, subscriptions, exceptions, origins, drawn_before, (SELECT last_value FROM reference_sequence),
           ARRAY(SELECT part.id
                   FROM unnest(part_ids, part_bodies) WITH ORDINALITY AS part (id, body, place)
                  WHERE part.id = ANY (with_body) AND part.body IS NOT NULL
                  ORDER BY part.place),
           ARRAY(SELECT part.body
                   FROM unnest(part_ids, part_bodies) WITH ORDINALITY AS part (id, body, place)
                  WHERE part.id = ANY (with_body) AND part.body IS NOT NULL
                  ORDER BY part.place)
     WHERE EXISTS (SELECT
                     FROM unnest(message_ids, levels) AS message (id, level)
                    WHERE coalesce(message.level, 'events') <> 'off');
END $$;
COMMENT ON FUNCTION track_some IS 'track what was published a few at a time, where some of it is not to be tracked, or with its bodies: the body of a message has the id of the message';

DROP FUNCTION publish_few;
CREATE FUNCTION publish_few(
    message_ids uuid[], contexts json[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[], sizes bigint[],
    pieces integer[], references_to uuid[], subscriptions integer[], exceptions json, publishing integer, matched uuid,
    read_by uuid, origins json DEFAULT NULL
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
DECLARE
    counted uuid[] := references_to;
    drawn_before bigint := (SELECT last_value FROM reference_sequence);
BEGIN
    IF exceptions IS NOT NULL THEN
        counted := counted || ARRAY(SELECT reference.message_id
                                      FROM unnest(ARRAY['queued', 'activated', 'stopped', 'suspended']) AS kind,
                                           json_to_recordset(exceptions -> kind) AS reference (message_id uuid));
    END IF;
    -- First something is written, and the transaction has its number, before the references draw theirs. A message is stored
    -- with the number of references that are written here.
    INSERT INTO message (id, context, part_count, parts, reference_count)
    SELECT message.id, message.context, cardinality(own.parts), own.parts, cardinality(array_positions(counted, message.id))
      FROM unnest(message_ids, contexts) AS message (id, context)
     CROSS JOIN LATERAL (SELECT ARRAY(SELECT part.id
                                        FROM unnest(part_of, part_ids) WITH ORDINALITY AS part (message_id, id, number)
                                       WHERE part.message_id = message.id
                                       ORDER BY part.number) AS parts) AS own;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT part.id, part.name, part.body, coalesce(part.size, length(part.body)), coalesce(part.pieces, 0)
      FROM unnest(part_ids, names, bodies, sizes, pieces) AS part (id, name, body, size, pieces);
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
REVOKE ALL ON FUNCTION publish_few FROM PUBLIC;
COMMENT ON FUNCTION publish_few IS 'a few messages with everything that publishing writes, in one round trip; the only way in for the role of a host';

ALTER TYPE moving ADD ATTRIBUTE event text, ADD ATTRIBUTE claimed_at timestamptz;

CREATE OR REPLACE FUNCTION publish_exceptions(exceptions json) RETURNS void LANGUAGE plpgsql STRICT AS $$
BEGIN
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id, instance_id)
    -- An ordered service has its own place for what activates it only.
    SELECT waiting.host_id, coalesce(-waiting.bound_to, least(service.subqueue, 0)), waiting.priority, reference.message_id,
           waiting.id, waiting.service_id, waiting.instance_id
      FROM ROWS FROM (json_to_recordset(exceptions -> 'queued') AS (message_id uuid, subscription_id bigint, hash uuid))
           WITH ORDINALITY AS reference (message_id, subscription_id, hash, place)
      JOIN instance_subscription AS waiting ON waiting.id = reference.subscription_id AND waiting.hash = reference.hash
      JOIN service ON service.id = waiting.service_id
     ORDER BY reference.place; -- what is published together arrives in its order
    IF json_typeof(exceptions -> 'activated') = 'array' THEN
        PERFORM activate_instances(exceptions);
    END IF;
    IF json_typeof(exceptions -> 'stopped') = 'array' THEN
        WITH stopped AS (
            INSERT INTO suspended (host_id, kind, code, message_id, subscription_id, service_id, priority, reason)
            SELECT subscription.host_id, 'stopped', reference.code, reference.message_id, subscription.id,
                   subscription.service_id, subscription.priority, reference.reason
              FROM ROWS FROM (json_to_recordset(exceptions -> 'stopped')
                              AS (code text, message_id uuid, subscription_id bigint, reason text))
                   WITH ORDINALITY AS reference (code, message_id, subscription_id, reason, place)
              JOIN subscription ON subscription.id = reference.subscription_id
             ORDER BY reference.place
            RETURNING *
        )
        INSERT INTO track_settled (host_id, event, code, reason, attempt, block, sequence, message_id, service_id)
        SELECT host_id, 'suspended', code, reason, attempt, sequence >> 12,
               array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id)
          FROM stopped
         WHERE service_id NOT IN (SELECT id FROM service WHERE track = 'off')
         GROUP BY host_id, code, reason, sequence >> 12, attempt;
    END IF;
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

CREATE OR REPLACE FUNCTION move_references(moved moving[]) RETURNS TABLE (sequence bigint, message_id uuid, host_id smallint)
LANGUAGE plpgsql STRICT AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH placed AS (
        SELECT reference.*,
               CASE WHEN reference.tried THEN least(reference.attempt, 32766::smallint) + 1 ELSE reference.attempt END
                   AS attempted,
               CASE WHEN service.class = 'orchestration' THEN service.host_id
                    WHEN reference.subqueue < 0 OR reference.subqueue = 0 AND reference.becomes = 'suspended'
                    THEN reference.host_id
                    ELSE service.host_id END AS target,
               CASE WHEN service.class = 'orchestration' THEN service.subqueue
                    WHEN reference.subqueue < 0 OR reference.subqueue > 0 AND reference.becomes = 'queued' THEN reference.subqueue
                    ELSE service.subqueue END AS place,
               reference.subqueue < 0 AND service.class <> 'orchestration' AS is_response
          FROM unnest(moved) AS reference
          JOIN service ON service.id = reference.service_id
    ), judged AS (
        -- Nothing carries labels where there never were any. What the host it goes to lacks a label of stays where it is.
        SELECT placed.*,
               CASE WHEN (SELECT labelled FROM host WHERE id = placed.host_id)
                     AND (placed.becomes <> 'suspended' OR placed.subqueue > 0)
                    THEN why_withheld(placed.message_id, placed.target) END AS withheld
          FROM placed
    ), kept AS (
        INSERT INTO suspended (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt,
                               subqueue, instance_id, reason, suspended_at)
        SELECT CASE WHEN withheld IS NULL THEN target ELSE host_id END, sequence,
               CASE WHEN becomes = 'suspended' THEN kind WHEN is_response AND becomes <> 'resumed' THEN 'response' ELSE 'send' END,
               CASE WHEN becomes = 'suspended' THEN code ELSE 'label-missing' END,
               message_id, subscription_id, service_id, priority,
               CASE WHEN becomes = 'suspended' THEN attempted ELSE attempt END, subqueue, instance_id,
               CASE WHEN becomes = 'suspended' THEN reason ELSE withheld END, suspended_at
          FROM judged
         WHERE becomes = 'suspended' OR withheld IS NOT NULL
    ), later AS (
        INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue,
                               instance_id, due_at, reason)
        SELECT target, sequence, priority, message_id, subscription_id, service_id, attempted, subqueue, instance_id, due_at, reason
          FROM judged
         WHERE becomes = 'scheduled' AND withheld IS NULL
    ), ready AS (
        INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                           deaths)
        SELECT target, sequence, priority, message_id, subscription_id, service_id,
               CASE WHEN becomes = 'resumed' THEN 0 ELSE attempted END, place, instance_id,
               CASE WHEN tried THEN 0 ELSE deaths END
          FROM judged
         WHERE becomes IN ('queued', 'resumed') AND withheld IS NULL
    ), tracked AS (
        INSERT INTO track_settled (host_id, event, code, reason, attempt, claimed_at, block, sequence, message_id, service_id, instance_id)
        SELECT host_id, happened.event, happened.code, happened.reason, attempted, claimed_at, sequence >> 12,
               array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
               CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
          FROM judged
         CROSS JOIN LATERAL (SELECT CASE WHEN kept_back THEN 'suspended' ELSE judged.event END AS event,
                                    CASE WHEN kept_back THEN 'label-missing' ELSE judged.code END AS code,
                                    CASE WHEN kept_back THEN withheld ELSE judged.reason END AS reason
                               FROM (SELECT judged.becomes <> 'suspended' AND withheld IS NOT NULL AS kept_back) AS found)
                    AS happened
         WHERE happened.event IS NOT NULL
           AND service_id NOT IN (SELECT service.id FROM service WHERE service.track = 'off')
         GROUP BY host_id, happened.event, happened.code, happened.reason, sequence >> 12, attempted, claimed_at
    )
    SELECT sequence, message_id, target FROM judged WHERE becomes IN ('queued', 'resumed') AND withheld IS NULL;
END $$;

CREATE OR REPLACE FUNCTION withhold_labelled(host_number smallint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH queued AS (
        DELETE FROM queue WHERE host_id = host_number AND why_withheld(message_id, host_number) IS NOT NULL RETURNING *
    ), postponed AS (
        DELETE FROM scheduled WHERE host_id = host_number AND why_withheld(message_id, host_number) IS NOT NULL RETURNING *
    ), stopped AS (
        UPDATE suspended
           SET kind = 'send', code = 'label-missing', reason = why_withheld(message_id, host_number)
         WHERE host_id = host_number AND kind = 'stopped' AND why_withheld(message_id, host_number) IS NOT NULL
        RETURNING *
    ), kept AS (
        INSERT INTO suspended (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, subqueue,
                               instance_id, reason)
        SELECT host_number, sequence, CASE WHEN subqueue < 0 AND subqueue > -2147483648 THEN 'response' ELSE 'send' END, 'label-missing', message_id,
               subscription_id, service_id, priority, attempt, subqueue, instance_id, why_withheld(message_id, host_number)
          FROM (SELECT sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id FROM queued
                 UNION ALL
                SELECT sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id FROM postponed)
               AS withheld
        RETURNING *
    )
    INSERT INTO track_settled (host_id, event, code, reason, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_number, 'suspended', code, reason, attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM (SELECT * FROM stopped UNION ALL SELECT * FROM kept) AS happened
     WHERE service_id NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY code, reason, sequence >> 12, attempt;
END $$;

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

CREATE FUNCTION make_track_partitions(parent text, days integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    today date := (clock() AT TIME ZONE 'UTC')::date;
    day date;
    filled boolean;
    made integer := 0;
BEGIN
    FOR day IN SELECT today + number FROM generate_series(0, days) AS number LOOP
        CONTINUE WHEN to_regclass(format('%I', parent || to_char(day, '_YYYYMMDD'))) IS NOT NULL;
        -- What came before its partition was made stays in the rest, and so does all of that day.
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE at >= %L AND at < %L)', parent || '_rest',
                       day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC') INTO filled;
        CONTINUE WHEN filled;
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
                        WITH (autovacuum_vacuum_insert_threshold = -1)',
                       parent || to_char(day, '_YYYYMMDD'), parent);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent,
                       parent || to_char(day, '_YYYYMMDD'), day::timestamp AT TIME ZONE 'UTC',
                       (day + 1)::timestamp AT TIME ZONE 'UTC');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
COMMENT ON FUNCTION make_track_partitions IS 'a partition of the track for each of the next days; gives how many are new';

CREATE FUNCTION drop_track_partitions(parent text, kept interval) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    old name;
    over boolean;
    dropped integer := 0;
BEGIN
    FOR old IN SELECT relname
                 FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
                WHERE inhparent = parent::regclass AND relname ~ '_[0-9]{8}$'
                  AND (to_date(right(relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= clock() - kept LOOP
        EXECUTE format('DROP TABLE %I', old);
        dropped := dropped + 1;
    END LOOP;
    EXECUTE format('SELECT max(at) <= clock() - %L::interval FROM %I', kept, parent || '_rest') INTO over;
    IF over THEN
        EXECUTE format('TRUNCATE %I', parent || '_rest');
        dropped := dropped + 1;
    END IF;
    RETURN dropped;
END $$;
COMMENT ON FUNCTION drop_track_partitions IS 'forget days of the track that are over for so long; gives how many partitions are gone or empty';
