-- Groups of send ports. Each member is a service of its own under the group, which delivers by the definition of its port.
CREATE TABLE send_port_group (
    name         text    PRIMARY KEY,
    application  text    NOT NULL REFERENCES application,
    group_id     uuid    NOT NULL DEFAULT gen_random_uuid(),
    state        text    NOT NULL DEFAULT 'started',
    deployed     boolean NOT NULL DEFAULT true,
    CONSTRAINT groups_are_started_stopped_or_unenlisted CHECK (state IN ('started', 'stopped', 'unenlisted'))
);
ALTER TABLE service ADD COLUMN group_name text REFERENCES send_port_group;
ALTER TABLE service ADD COLUMN port_id integer REFERENCES service;
ALTER TABLE service ADD CONSTRAINT a_member_has_a_group_and_a_port CHECK ((group_name IS NULL) = (port_id IS NULL));
CREATE INDEX ON service (port_id) WHERE port_id IS NOT NULL;
COMMENT ON TABLE service IS 'who can be given messages: a send port, a send port as member of a group, or a two-way receive port that waits for responses';
COMMENT ON COLUMN service.port_id IS 'the send port whose member of a group this is';

-- An ordered line that stops at a failure stays blocked until the message that failed is resumed or ended.
ALTER TABLE ordered_line ADD COLUMN blocked_by bigint;
COMMENT ON COLUMN ordered_line.blocked_by IS 'the suspended reference that has to be dealt with before the line goes on';

-- What an instance says of itself, every second or so.
ALTER TABLE host_instance ADD COLUMN class text NOT NULL DEFAULT 'messaging' REFERENCES service_class;
ALTER TABLE host_instance ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE host_instance ADD COLUMN state text NOT NULL DEFAULT 'running';
ALTER TABLE host_instance ADD COLUMN in_hand integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN host_instance.state IS 'running, throttled (with the reason) or stopping';

-- What is received without a source in the ledger is counted too.
CREATE SEQUENCE express_sequence;

CREATE FUNCTION check_epoch(publishing integer, matched bigint, read_by bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(publishing);
    IF NOT EXISTS (SELECT FROM box WHERE epoch = matched AND location_epoch = coalesce(read_by, location_epoch)) THEN
        RAISE EXCEPTION 'The epoch has moved.' USING ERRCODE = 'CX001';
    END IF;
END $$;
COMMENT ON FUNCTION check_epoch IS 'the last step of publishing, where the answer is not waited for: it fails if the epoch has moved';

CREATE FUNCTION publish_few(
    message_ids uuid[], contexts json[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[],
    hosts smallint[], lines integer[], priorities smallint[], references_to uuid[], subscriptions bigint[],
    services integer[], publishing integer, matched bigint, read_by bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    active reference_log;
BEGIN
    -- First something is written, and the transaction has its number, before the references draw theirs.
    INSERT INTO message (id, context, part_count, parts)
    SELECT message.id, message.context, cardinality(own.parts), own.parts
      FROM unnest(message_ids, contexts) AS message (id, context)
     CROSS JOIN LATERAL (SELECT ARRAY(SELECT part.id
                                        FROM unnest(part_of, part_ids) WITH ORDINALITY AS part (message_id, id, number)
                                       WHERE part.message_id = message.id
                                       ORDER BY part.number) AS parts) AS own;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT part.id, part.name, part.body, length(part.body), 0 FROM unnest(part_ids, names, bodies) AS part (id, name, body);
    INSERT INTO queue (host_id, line, priority, message_id, subscription_id, service_id)
    SELECT * FROM unnest(hosts, lines, priorities, references_to, subscriptions, services);
    SELECT * INTO active FROM reference_log;
    IF active.message = 1 THEN
        INSERT INTO message_ref_log_1 SELECT id, count(*) FROM unnest(references_to) AS reference (id) GROUP BY id;
    ELSE
        INSERT INTO message_ref_log_2 SELECT id, count(*) FROM unnest(references_to) AS reference (id) GROUP BY id;
    END IF;
    IF active.part = 1 THEN
        INSERT INTO part_ref_log_1 SELECT id, 1 FROM unnest(part_ids) AS part (id);
    ELSE
        INSERT INTO part_ref_log_2 SELECT id, 1 FROM unnest(part_ids) AS part (id);
    END IF;
    PERFORM check_epoch(publishing, matched, read_by);
END $$;
COMMENT ON FUNCTION publish_few IS 'a few messages, all of which go to queues: everything that publishing writes, in one round trip';
