-- Orchestrations: their code, their running instances, and what these wait for.

ALTER TABLE service ADD COLUMN receives json NOT NULL DEFAULT '[]', ADD COLUMN version text,
    ADD COLUMN versions text[] NOT NULL DEFAULT '{}',
    ADD COLUMN subqueue integer GENERATED ALWAYS AS (CASE WHEN class = 'orchestration' THEN (-2147483648)::integer
                                                          WHEN ordered THEN coalesce(port_id, id)
                                                          ELSE 0 END) STORED;
COMMENT ON TABLE service IS 'who can be given messages: a send port, a send port as member of a group, a two-way receive port that waits for responses, or an orchestration';
COMMENT ON COLUMN service.receives IS 'what activates an orchestration, and the correlations that each initializes: publishers read it';
COMMENT ON COLUMN service.version IS 'the code that new instances of an orchestration run';
COMMENT ON COLUMN service.versions IS 'every version that an orchestration has had: its instances run these, and no other';
COMMENT ON COLUMN service.subqueue IS 'where its references wait: orchestrations have one of their own at each host';
COMMENT ON COLUMN queue.subqueue IS '0 for everybody; the id of an ordered service; minus the id of the one host instance that may take it; the lowest number for orchestrations';

ALTER TABLE correlation DROP CONSTRAINT correlation_property_key,
    ADD COLUMN service_id integer REFERENCES service, ADD COLUMN name text, ADD COLUMN types text[],
    ADD CONSTRAINT a_correlation_of_an_orchestration_has_a_name_and_types
        CHECK ((service_id IS NULL) = (name IS NULL) AND (service_id IS NULL) = (types IS NULL));
CREATE UNIQUE INDEX properties_correlate_for_everybody_once ON correlation (property) WHERE service_id IS NULL;
CREATE UNIQUE INDEX an_orchestration_has_a_correlation_once ON correlation (service_id, name, property, types);
COMMENT ON COLUMN correlation.types IS 'of messages that may follow; null for any, as responses do';

CREATE FUNCTION correlation_of(hash uuid) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || left(hash::text, 8))::bit(32)::integer;
COMMENT ON FUNCTION correlation_of IS 'the correlation that a hash begins with: nobody waits by the values of others';

CREATE INDEX ON claimed (instance_id) WHERE instance_id IS NOT NULL;

CREATE TABLE orchestration_version (
    digest       text        PRIMARY KEY,
    application  text        NOT NULL REFERENCES application,
    bundle       bytea       NOT NULL,
    packages     json        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock()
);
COMMENT ON TABLE orchestration_version IS 'the code of orchestrations: hosts execute it, so only the owner of the MessageBox writes it';

DROP POLICY own_subscriptions ON instance_subscription;
CREATE POLICY own_subscriptions ON instance_subscription
    USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[]))
    WITH CHECK (correlation_of(hash) = correlation_id
                AND EXISTS (SELECT
                              FROM service
                              JOIN correlation ON coalesce(correlation.service_id, service.id) = service.id
                             WHERE service.id = instance_subscription.service_id
                               AND correlation.id = instance_subscription.correlation_id
                               AND service.host_id = instance_subscription.host_id
                               AND service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[])));

CREATE VIEW version_definition WITH (security_barrier) AS
SELECT digest, bundle, packages
  FROM orchestration_version
 WHERE EXISTS (SELECT
                 FROM service
                WHERE orchestration_version.digest = ANY (service.versions)
                  AND service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[]));
COMMENT ON VIEW version_definition IS 'the code that a process executes: of the orchestrations of its own hosts';

CREATE TABLE instance (
    host_id       smallint    NOT NULL,
    id            uuid        NOT NULL,
    service_id    integer     NOT NULL,
    version       text        NOT NULL,
    activation    uuid        NOT NULL,
    step          integer     NOT NULL DEFAULT 0,
    state         text        NOT NULL DEFAULT 'running',
    since         timestamptz NOT NULL DEFAULT clock(),
    activated_at  timestamptz NOT NULL DEFAULT clock(),
    waiting_for   text        NOT NULL DEFAULT '',
    line          text        NOT NULL DEFAULT '',
    code          text,
    reason        text,
    traceback     text,
    PRIMARY KEY (host_id, id),
    CONSTRAINT orchestrations_run_are_suspended_or_are_cancelled CHECK (state IN ('running', 'suspended', 'cancelling')),
    CONSTRAINT a_suspended_instance_has_a_reason CHECK ((state = 'suspended') = (reason IS NOT NULL))
) PARTITION BY LIST (host_id);
CREATE INDEX ON instance (service_id);
COMMENT ON TABLE instance IS 'running orchestrations; there is none for one that ends in its first step';
COMMENT ON COLUMN instance.step IS 'how many steps are done: whoever does the next one has seen so many';
COMMENT ON COLUMN instance.activation IS 'the message that began it';
COMMENT ON COLUMN instance.code IS 'why it is suspended, in one word';

CREATE TABLE history (
    host_id      smallint NOT NULL,
    instance_id  uuid     NOT NULL,
    step         integer  NOT NULL,
    record       bytea    NOT NULL,
    PRIMARY KEY (host_id, instance_id, step)
) PARTITION BY LIST (host_id);
COMMENT ON TABLE history IS 'what each step of an instance was given and has done: to be replayed';

CREATE TABLE held (
    host_id      smallint NOT NULL,
    instance_id  uuid     NOT NULL,
    sequence     bigint   NOT NULL,
    message_id   uuid     NOT NULL,
    step         integer,
    subscription_id bigint NOT NULL,
    PRIMARY KEY (host_id, instance_id, sequence)
) PARTITION BY LIST (host_id);
COMMENT ON TABLE held IS 'references of running instances, kept until they end: to be replayed, or to be given to the code later';
COMMENT ON COLUMN held.step IS 'in which step the code was given the message; null if it was not';

CREATE TABLE timer (
    host_id      smallint    NOT NULL,
    instance_id  uuid        NOT NULL,
    number       integer     NOT NULL,
    due_at       timestamptz NOT NULL,
    PRIMARY KEY (host_id, instance_id, number),
    CONSTRAINT timers_are_due_in_our_time CHECK (due_at BETWEEN '1970-01-01Z' AND '9999-12-31 23:59:59.999999Z')
) PARTITION BY LIST (host_id);
CREATE INDEX ON timer (host_id, due_at);
COMMENT ON COLUMN timer.number IS '0 wakes an instance that was resumed or is to be cancelled';

CREATE TABLE convoy (
    hash         uuid     PRIMARY KEY,
    instance_id  uuid     NOT NULL,
    host_id      smallint NOT NULL
);
CREATE INDEX ON convoy (instance_id);
COMMENT ON TABLE convoy IS 'the one instance that messages with these values begin or join';

CREATE OR REPLACE FUNCTION create_host(host_name text) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    host_number smallint;
    parent text;
BEGIN
    SELECT id INTO host_number FROM host WHERE name = host_name;
    IF FOUND THEN
        RETURN host_number;
    END IF;
    INSERT INTO host (name) VALUES (host_name) RETURNING id INTO host_number;
    FOREACH parent IN ARRAY ARRAY['queue', 'claimed', 'scheduled', 'suspended', 'instance', 'history', 'held', 'timer'] LOOP
        -- Queues turn over quickly: vacuum early, or dead rows slow every claim; but not for what was only inserted.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                        WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
                              autovacuum_vacuum_insert_threshold = -1)',
                       parent || '_' || host_number, parent);
        -- Attached, not created in place: that would have to wait for everybody who is publishing.
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%s)',
                       parent, parent || '_' || host_number, host_number);
    END LOOP;
    RETURN host_number;
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
        'SELECT ON service_definition, location_definition, delivery_count, version_definition',
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

DO $$
DECLARE
    host_number smallint;
    parent text;
BEGIN
    FOR host_number IN SELECT id FROM host LOOP
        FOREACH parent IN ARRAY ARRAY['instance', 'history', 'held', 'timer'] LOOP
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                            WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
                                  autovacuum_vacuum_insert_threshold = -1)',
                           parent || '_' || host_number, parent);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%s)',
                           parent, parent || '_' || host_number, host_number);
        END LOOP;
    END LOOP;
END $$;

CREATE FUNCTION activate_instances(exceptions json) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- The first message for a new instance begins it; in a convoy the others join. Later messages of the instance have the
    -- same priority, so that they come after these.
    INSERT INTO instance (host_id, id, service_id, version, activation)
    SELECT DISTINCT ON (begun.instance_id) subscription.host_id, begun.instance_id, service.id, service.version, begun.message_id
      FROM ROWS FROM (json_to_recordset(exceptions -> 'activated') AS (message_id uuid, subscription_id integer, instance_id uuid))
           WITH ORDINALITY AS begun (message_id, subscription_id, instance_id, place)
      JOIN subscription ON subscription.id = begun.subscription_id
      JOIN service ON service.id = subscription.service_id
     WHERE service.class = 'orchestration'
     ORDER BY begun.instance_id, begun.place;
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id, instance_id)
    SELECT subscription.host_id, service.subqueue, 0, begun.message_id, subscription.id, service.id, begun.instance_id
      FROM ROWS FROM (json_to_recordset(exceptions -> 'activated') AS (message_id uuid, subscription_id integer, instance_id uuid))
           WITH ORDINALITY AS begun (message_id, subscription_id, instance_id, place)
      JOIN subscription ON subscription.id = begun.subscription_id
      JOIN service ON service.id = subscription.service_id
     WHERE service.class = 'orchestration'
     ORDER BY begun.place;
    INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)
    SELECT begun.instance_id, service.id, subscription.host_id, correlation.id, begun.hash, begun.value
      FROM json_to_recordset(exceptions -> 'initialized')
           AS begun (instance_id uuid, subscription_id integer, correlation_id integer, hash uuid, value text[])
      JOIN subscription ON subscription.id = begun.subscription_id
      JOIN service ON service.id = subscription.service_id
      JOIN correlation ON correlation.id = begun.correlation_id AND correlation.service_id = service.id;
END $$;
COMMENT ON FUNCTION activate_instances IS 'instances that a message begins, where it initializes their correlations: with what they wait for, in the transaction that publishes it';

CREATE OR REPLACE FUNCTION publish_exceptions(exceptions json) RETURNS void LANGUAGE plpgsql STRICT AS $$
BEGIN
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id, instance_id)
    -- An ordered service has its own place for what activates it only.
    SELECT waiting.host_id, coalesce(-waiting.bound_to, least(service.subqueue, 0)), waiting.priority, reference.message_id,
           waiting.id, waiting.service_id, waiting.instance_id
      FROM json_to_recordset(exceptions -> 'queued') AS reference (message_id uuid, subscription_id bigint, hash uuid)
      JOIN instance_subscription AS waiting ON waiting.id = reference.subscription_id AND waiting.hash = reference.hash
      JOIN service ON service.id = waiting.service_id;
    IF json_typeof(exceptions -> 'activated') = 'array' THEN
        PERFORM activate_instances(exceptions);
    END IF;
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

CREATE OR REPLACE FUNCTION check_exceptions(exceptions json, message_ids uuid[], publisher name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT
                 FROM unnest(ARRAY['queued', 'activated', 'stopped', 'suspended', 'refused']) AS kind,
                      json_to_recordset(exceptions -> kind) AS reference (message_id uuid)
                WHERE (reference.message_id = ANY (message_ids)) IS NOT TRUE) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a reference to a message that is not published here';
    END IF;
    -- What is begun is begun by an orchestration's own subscription, and waits by its own correlations. Each of its values has a
    -- hash that begins with the correlation, so that it is found by nothing that was meant for others.
    IF EXISTS (SELECT
                 FROM json_to_recordset(exceptions -> 'activated') AS begun (subscription_id integer, instance_id uuid)
                WHERE NOT EXISTS (SELECT
                                    FROM subscription JOIN service ON service.id = subscription.service_id
                                   WHERE subscription.id = begun.subscription_id AND service.class = 'orchestration'
                                     AND service.state = 'started'))
       OR EXISTS (SELECT
                    FROM json_to_recordset(exceptions -> 'initialized')
                         AS waiting (instance_id uuid, subscription_id integer, correlation_id integer, hash uuid)
                   WHERE ((waiting.instance_id, waiting.subscription_id)
                          IN (SELECT begun.instance_id, begun.subscription_id
                                FROM json_to_recordset(exceptions -> 'activated')
                                     AS begun (subscription_id integer, instance_id uuid))
                          AND correlation_of(waiting.hash) = waiting.correlation_id) IS NOT TRUE)
       OR EXISTS (SELECT
                    FROM json_to_recordset(exceptions -> 'activated') AS begun (subscription_id integer, instance_id uuid)
                    JOIN subscription ON subscription.id = begun.subscription_id
                    JOIN host ON host.id <> subscription.host_id
                   CROSS JOIN LATERAL (SELECT FROM instance WHERE host_id = host.id AND id = begun.instance_id LIMIT 1)
                              AS elsewhere) THEN
        RAISE insufficient_privilege USING MESSAGE = 'an instance is begun that no orchestration would begin';
    END IF;
    -- What is tracked of a message that a running instance is given names that instance.
    IF EXISTS (SELECT
                 FROM json_to_recordset(exceptions -> 'queued')
                      AS reference (subscription_id bigint, hash uuid, instance_id uuid)
                 JOIN instance_subscription AS waiting ON waiting.id = reference.subscription_id AND waiting.hash = reference.hash
                WHERE reference.instance_id <> waiting.instance_id) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a message is said to be given to another instance than it is';
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
                    FROM json_to_recordset(exceptions -> 'awaited')
                         AS waiting (service_id integer, host_id smallint, correlation_id integer, hash uuid)
                   WHERE correlation_of(waiting.hash) IS DISTINCT FROM waiting.correlation_id
                      OR NOT EXISTS (SELECT
                                       FROM service
                                       JOIN correlation ON coalesce(correlation.service_id, service.id) = service.id
                                      WHERE service.id = waiting.service_id
                                        AND correlation.id = waiting.correlation_id
                                        AND service.host_id = waiting.host_id
                                        AND service.host_id = ANY (own_hosts(publisher)))) THEN
        RAISE insufficient_privilege USING MESSAGE = 'something is suspended, or waits, at a host of others';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION publish_few(
    message_ids uuid[], contexts json[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[], sizes bigint[],
    pieces integer[], references_to uuid[], subscriptions integer[], exceptions json, publishing integer, matched uuid,
    read_by uuid
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
DECLARE
    counted uuid[] := references_to;
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
    )
    INSERT INTO suspended (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, subqueue,
                           instance_id, reason)
    SELECT host_number, sequence, CASE WHEN subqueue < 0 AND subqueue > -2147483648 THEN 'response' ELSE 'send' END, 'label-missing', message_id,
           subscription_id, service_id, priority, attempt, subqueue, instance_id, why_withheld(message_id, host_number)
      FROM (SELECT sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id FROM queued
             UNION ALL
            SELECT sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id FROM postponed)
           AS withheld;
END $$;
