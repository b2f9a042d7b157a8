-- One word for one thing: a subqueue is what is taken in order, or by one host instance only; its lease says who takes it; a
-- reference count is how many references a message, or messages a part, was stored with. References that leave a place go to
-- the next by one function. A few messages are published in one round trip whatever they need. A step may end instances and
-- publish to others at once.
ALTER TABLE queue RENAME COLUMN line TO subqueue;
ALTER TABLE claimed RENAME COLUMN line TO subqueue;
ALTER TABLE scheduled RENAME COLUMN line TO subqueue;
ALTER TABLE suspended RENAME COLUMN line TO subqueue;
ALTER TABLE message RENAME COLUMN given TO reference_count;
ALTER TABLE part RENAME COLUMN given TO reference_count;
ALTER TABLE ordered_line RENAME TO subqueue_lease;
ALTER POLICY own_lines ON subqueue_lease RENAME TO own_leases;
ALTER FUNCTION line_may_go_on RENAME TO subqueue_may_go_on;
ALTER TABLE subqueue_lease ADD COLUMN claim bigint NOT NULL DEFAULT 0;

-- What PostgreSQL named after the columns and the table. Since version 18 NOT NULL has a name too.
DO $$
DECLARE
    named record;
BEGIN
    FOR named IN SELECT conrelid::regclass AS relation, conname AS name,
                        replace(replace(replace(conname, 'ordered_line', 'subqueue_lease'), '_line_', '_subqueue_'),
                                '_given_', '_reference_count_') AS better
                   FROM pg_constraint
                  WHERE conrelid IN ('queue'::regclass, 'claimed'::regclass, 'scheduled'::regclass, 'suspended'::regclass,
                                     'message'::regclass, 'part'::regclass, 'subqueue_lease'::regclass)
                    AND conname ~ '_line_|_given_|ordered_line' LOOP
        EXECUTE format('ALTER TABLE %s RENAME CONSTRAINT %I TO %I', named.relation, named.name, named.better);
    END LOOP;
    FOR named IN SELECT indexrelid::regclass AS relation,
                        replace(replace(relname, 'ordered_line', 'subqueue_lease'), '_line_', '_subqueue_') AS better
                   FROM pg_index
                   JOIN pg_class ON pg_class.oid = indexrelid
                  WHERE indrelid IN ('queue'::regclass, 'subqueue_lease'::regclass) AND relname ~ '_line_|ordered_line' LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO %I', named.relation, named.better);
    END LOOP;
END $$;

CREATE TYPE moving AS (
    host_id          smallint,
    sequence         bigint,
    priority         smallint,
    message_id       uuid,
    subscription_id  bigint,
    service_id       integer,
    attempt          smallint,
    subqueue             integer,
    instance_id      uuid,
    deaths           smallint,
    tried            boolean,
    becomes          text,
    due_at           timestamptz,
    kind             text,
    code             text,
    reason           text,
    suspended_at     timestamptz
);

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
        'SELECT (id, context, part_count, parts), INSERT (id, context, part_count, parts, reference_count) ON message',
        'SELECT (id, name, body, size, fragments), INSERT (id, name, body, size, fragments) ON part',
        'SELECT, INSERT ON fragment',
        'INSERT ON queue, scheduled, refusal, message_ref_log_1, message_ref_log_2',
        'INSERT (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, reason, suspended_at,
                 instance_id, subqueue) ON suspended',
        'INSERT (service_id, count, delivered_at) ON delivery',
        'EXECUTE ON FUNCTION count_express, subqueue_may_go_on',
        'USAGE, SELECT ON SEQUENCE reference_sequence',
        'USAGE ON SEQUENCE ' || pg_get_serial_sequence('intake', 'sequence'),
        -- Its instances, and whoever waits in their memory: policies say which rows.
        'SELECT (id, host_id, class, started_at, seen_at, state, in_hand, delivering),
         INSERT (id, host_id, class, machine, process), UPDATE (seen_at, state, in_hand, delivering), DELETE
             ON host_instance',
        'SELECT (id, instance_id, service_id, host_id, correlation_id, hash, priority, bound_to),
         INSERT (instance_id, service_id, host_id, correlation_id, hash, value, bound_to), UPDATE (created_at), DELETE
             ON instance_subscription',
        'SELECT (service_id, host_id, held_by, held_at, claim, blocked_until, blocked_by),
         UPDATE (held_by, held_at, claim, blocked_until, blocked_by, reason) ON subqueue_lease',
        format('SELECT, INSERT, UPDATE, DELETE ON queue_%1$s, claimed_%1$s, scheduled_%1$s, suspended_%1$s', host_number)
    ] LOOP
        EXECUTE format('GRANT %s TO %I', allowed, role_name);
    END LOOP;
    RETURN role_name;
END $$;

CREATE FUNCTION publish_exceptions(exceptions json) RETURNS void LANGUAGE plpgsql STRICT AS $$
BEGIN
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id, instance_id)
    SELECT *
      FROM json_to_recordset(exceptions -> 'queued')
           AS reference (host_id smallint, subqueue integer, priority smallint, message_id uuid, subscription_id bigint,
                         service_id integer, instance_id uuid);
    INSERT INTO suspended (host_id, kind, code, message_id, subscription_id, service_id, priority, reason)
    SELECT *
      FROM json_to_recordset(exceptions -> 'suspended')
           AS reference (host_id smallint, kind text, code text, message_id uuid, subscription_id bigint,
                         service_id integer, priority smallint, reason text);
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

DROP FUNCTION publish_few;
CREATE FUNCTION publish_few(
    message_ids uuid[], contexts json[], counts integer[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[],
    hosts smallint[], subqueues integer[], priorities smallint[], references_to uuid[], subscriptions bigint[],
    services integer[], exceptions json, publishing integer, matched uuid, read_by uuid
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- First something is written, and the transaction has its number, before the references draw theirs.
    INSERT INTO message (id, context, part_count, parts, reference_count)
    SELECT message.id, message.context, cardinality(own.parts), own.parts, message.count
      FROM unnest(message_ids, contexts, counts) AS message (id, context, count)
     CROSS JOIN LATERAL (SELECT ARRAY(SELECT part.id
                                        FROM unnest(part_of, part_ids) WITH ORDINALITY AS part (message_id, id, number)
                                       WHERE part.message_id = message.id
                                       ORDER BY part.number) AS parts) AS own;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT part.id, part.name, part.body, length(part.body), 0 FROM unnest(part_ids, names, bodies) AS part (id, name, body);
    INSERT INTO queue (host_id, subqueue, priority, message_id, subscription_id, service_id)
    SELECT * FROM unnest(hosts, subqueues, priorities, references_to, subscriptions, services);
    IF exceptions IS NOT NULL THEN
        PERFORM publish_exceptions(exceptions);
    END IF;
    PERFORM check_epoch(publishing, matched, read_by);
END $$;

CREATE FUNCTION lock_subscriptions(sought uuid[], ending uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    waiting record;
BEGIN
    FOR waiting IN SELECT id, false AS ends FROM instance_subscription WHERE hash = ANY (sought) AND instance_id <> ALL (ending)
                    UNION ALL
                   SELECT id, true FROM instance_subscription WHERE instance_id = ANY (ending)
                    ORDER BY id LOOP
        IF waiting.ends THEN
            PERFORM FROM instance_subscription WHERE id = waiting.id FOR UPDATE;
        ELSE
            PERFORM FROM instance_subscription WHERE id = waiting.id FOR KEY SHARE;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION move_references(moved moving[]) RETURNS TABLE (sequence bigint, message_id uuid, host_id smallint)
LANGUAGE plpgsql STRICT AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH placed AS (
        SELECT reference.*,
               CASE WHEN reference.tried THEN least(reference.attempt, 32766::smallint) + 1 ELSE reference.attempt END
                   AS attempted,
               CASE WHEN reference.subqueue < 0 OR reference.subqueue = 0 AND reference.becomes = 'suspended'
                    THEN reference.host_id
                    ELSE service.host_id END AS target,
               CASE WHEN reference.subqueue < 0 OR reference.subqueue > 0 AND reference.becomes = 'queued' THEN reference.subqueue
                    WHEN service.ordered THEN coalesce(service.port_id, service.id)
                    ELSE 0 END AS place
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
               CASE WHEN becomes = 'suspended' THEN kind WHEN subqueue < 0 AND becomes <> 'resumed' THEN 'response' ELSE 'send' END,
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
    SELECT host_number, sequence, CASE WHEN subqueue < 0 THEN 'response' ELSE 'send' END, 'label-missing', message_id,
           subscription_id, service_id, priority, attempt, subqueue, instance_id, why_withheld(message_id, host_number)
      FROM (SELECT sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id FROM queued
             UNION ALL
            SELECT sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id FROM postponed)
           AS withheld;
END $$;

COMMENT ON COLUMN message.reference_count IS 'references it was published with; what came and went since is in the logs, until there is a total';
COMMENT ON COLUMN part.reference_count IS 'messages it was stored with; likewise';
COMMENT ON COLUMN queue.subqueue IS '0 for everybody; the id of an ordered service; minus the id of the one host instance that may take it';
COMMENT ON COLUMN subqueue_lease.held_at IS 'when it was taken last, later than all others of its host: the subqueue that has waited longest is the next';
COMMENT ON COLUMN subqueue_lease.blocked_by IS 'the suspended reference that has to be dealt with before the subqueue goes on';
COMMENT ON COLUMN subqueue_lease.claim IS 'the claim that was made when it was taken last';
COMMENT ON TABLE subqueue_lease IS 'the lease of each ordered service: one host instance at a time, nobody while it is blocked';
COMMENT ON FUNCTION subqueue_may_go_on IS 'whether what blocks an ordered subqueue is no longer there: a suspended reference, or with 0 what began before it was ordered';
COMMENT ON FUNCTION publish_exceptions IS 'what publishing writes besides messages and references from the index: references of running instances, what is suspended or refused, who waits for a response, counts of locations';
COMMENT ON FUNCTION publish_few IS 'a few messages with everything that publishing writes, in one round trip';
COMMENT ON FUNCTION lock_subscriptions IS 'lock the subscriptions of instances that end, and those that wait by these hashes, in one pass in the order of their ids';
COMMENT ON TYPE moving IS 'a reference that was taken from where it was, and what becomes of it: queued, resumed, scheduled or suspended';
COMMENT ON FUNCTION move_references IS 'references go to the host that has their service now, and into its subqueue if it is ordered, except what only one host instance may take; gives those that are queued';
