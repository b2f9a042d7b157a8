-- Every suspended message has the code of its error, and the state of a host instance is one word.
ALTER TABLE suspended ADD COLUMN code text;
UPDATE suspended
   SET code = CASE
           WHEN reason LIKE '%lacks the label%'                                   THEN 'label-missing'
           WHEN kind = 'stopped'                                                  THEN 'port-stopped'
           WHEN kind = 'discarded'                                                THEN 'instance-ended'
           WHEN reason LIKE 'The message of this reference is gone%'              THEN 'message-gone'
           WHEN reason LIKE 'The stored context of this message cannot be read%'  THEN 'message-unreadable'
           WHEN kind = 'response'                                                 THEN 'nobody-waits'
           WHEN kind = 'unrouted' THEN CASE
               WHEN reason LIKE 'The % names is not enlisted.'                    THEN 'port-not-enlisted'
               WHEN reason LIKE 'The request matches more than one two-way%'      THEN 'more-than-one-answer'
               ELSE 'no-subscriber' END
           WHEN kind = 'receive' THEN CASE
               WHEN reason LIKE '%property ''%'' is %, and in %'                  THEN 'value-of-wrong-type'
               WHEN reason LIKE 'the pipeline failed: %'                          THEN 'pipeline-failed'
               WHEN reason LIKE 'the pipeline took more than %'                   THEN 'pipeline-too-slow'
               WHEN reason LIKE 'reading it ended the process, %'                 THEN 'too-many-deaths'
               WHEN reason LIKE 'the MessageBox cannot hold it: %'                THEN 'not-storable'
               ELSE 'document-invalid' END
           WHEN reason LIKE 'The process that delivered it has ended %'           THEN 'too-many-deaths'
           WHEN reason = 'The send port is no longer deployed.'                   THEN 'port-gone'
           WHEN reason LIKE 'What came of it cannot be published: %'              THEN 'answer-not-published'
           WHEN reason LIKE 'Unexpected %' OR reason LIKE 'Send port ''%'': unexpected %' THEN 'unexpected-error'
           WHEN reason LIKE 'Send port ''%'' gave up after % attempts: %'         THEN 'attempts-used-up'
           ELSE 'delivery-failed'
       END;
ALTER TABLE suspended ALTER COLUMN code SET NOT NULL;
COMMENT ON COLUMN suspended.code IS 'the code of the error, as errors.py has it';

UPDATE host_instance SET state = split_part(state, ':', 1);
ALTER TABLE host_instance
    ADD CONSTRAINT instances_are_in_a_known_state CHECK (state IN ('running', 'throttled', 'stuck', 'stopping', 'lost'));
COMMENT ON COLUMN host_instance.state IS 'running, throttled (takes no more), stuck (nothing of what it has moves), stopping, or lost: its process has gone on as another instance';

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
        'INSERT (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, reason, suspended_at,
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
    INSERT INTO suspended (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, line,
                           instance_id, reason)
    SELECT host_number, sequence, CASE WHEN line < 0 THEN 'response' ELSE 'send' END, 'label-missing', message_id,
           subscription_id, service_id, priority, attempt, line, instance_id, why_withheld(message_id, host_number)
      FROM (SELECT sequence, message_id, subscription_id, service_id, priority, attempt, line, instance_id FROM queued
             UNION ALL
            SELECT sequence, message_id, subscription_id, service_id, priority, attempt, line, instance_id FROM postponed)
           AS withheld;
END $$;
