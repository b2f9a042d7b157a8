-- States of services, lines in the queues, instance subscriptions, parts of their own, reference logs.

ALTER TABLE box ADD COLUMN location_epoch bigint NOT NULL DEFAULT 1;
ALTER TABLE box ADD COLUMN removals_after bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN box.location_epoch IS 'moves with every change of receive locations';
COMMENT ON COLUMN box.removals_after IS 'removals up to this epoch are forgotten: a router older than it is loaded anew';

ALTER TABLE host ADD COLUMN labels text[] NOT NULL DEFAULT '{}';
ALTER TABLE receive_location ADD COLUMN deployed boolean NOT NULL DEFAULT true;
UPDATE receive_location SET deployed = enabled;

CREATE TABLE service_class (
    name              text     PRIMARY KEY,
    polling_interval  interval NOT NULL,
    dequeue_threads   smallint NOT NULL,
    CONSTRAINT polling_takes_time CHECK (polling_interval > interval '0')
);
INSERT INTO service_class (name, polling_interval, dequeue_threads)
VALUES ('messaging', interval '500 milliseconds', 2),
       ('messaging isolated', interval '500 milliseconds', 1),
       ('orchestration', interval '500 milliseconds', 2),
       ('caching', interval '500 milliseconds', 0);

ALTER TABLE service ADD COLUMN class text NOT NULL DEFAULT 'messaging' REFERENCES service_class;
ALTER TABLE service ADD COLUMN transport_id uuid NOT NULL DEFAULT gen_random_uuid();
ALTER TABLE service ADD COLUMN priority smallint NOT NULL DEFAULT 5;
ALTER TABLE service ADD COLUMN ordered boolean NOT NULL DEFAULT false;
ALTER TABLE service ADD COLUMN two_way boolean NOT NULL DEFAULT false;
ALTER TABLE service ADD COLUMN predicate json NOT NULL DEFAULT '[]';
ALTER TABLE service ADD COLUMN state text NOT NULL DEFAULT 'started';
ALTER TABLE service ADD COLUMN deployed boolean NOT NULL DEFAULT true;
ALTER TABLE service ADD CONSTRAINT services_are_started_stopped_or_unenlisted
    CHECK (state IN ('started', 'stopped', 'unenlisted'));
ALTER TABLE service ADD CONSTRAINT priorities_are_from_1_to_10 CHECK (priority BETWEEN 1 AND 10);
COMMENT ON COLUMN service.predicate IS 'its filter as predicate rows, from which enlisting makes the subscription';

UPDATE service
   SET predicate = (SELECT coalesce(json_agg(json_build_array(group_number + 1, position, property, type, operator, value, pass)
                                             ORDER BY group_number, position), '[]')
                      FROM predicate
                      JOIN subscription ON subscription.id = predicate.subscription_id
                     WHERE subscription.service_id = service.id),
       priority = coalesce((SELECT priority FROM subscription WHERE service_id = service.id), 5),
       state = coalesce((SELECT state FROM subscription WHERE service_id = service.id), 'started'),
       deployed = EXISTS (SELECT FROM subscription WHERE service_id = service.id);
-- Group 0 is the transport id of the service from here on. Two steps: the key is checked row by row.
UPDATE predicate SET group_number = -1 - group_number;
UPDATE predicate SET group_number = -group_number;
INSERT INTO predicate (subscription_id, group_number, position, property, type, operator, value, pass)
SELECT subscription.id, 0, 0, 'BTS.SPTransportID', 'text', '=', ARRAY[service.transport_id::text], 1
  FROM subscription
  JOIN service ON service.id = subscription.service_id;
UPDATE application SET digest = '';

ALTER TABLE subscription DROP COLUMN state;
UPDATE box SET epoch = epoch + 1, epoch_token = gen_random_uuid();
UPDATE subscription SET epoch = (SELECT epoch FROM box);

CREATE TABLE correlation (
    id        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    property  text[]  NOT NULL UNIQUE
);
COMMENT ON TABLE correlation IS 'the sets of properties by which instance subscriptions correlate';

CREATE TABLE instance_subscription (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id     uuid        NOT NULL,
    service_id      integer     NOT NULL REFERENCES service,
    host_id         smallint    NOT NULL REFERENCES host,
    correlation_id  integer     NOT NULL REFERENCES correlation,
    hash            uuid        NOT NULL,
    value           text[]      NOT NULL,
    priority        smallint    NOT NULL DEFAULT 5,
    bound_to        integer,
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON instance_subscription (hash);
CREATE INDEX ON instance_subscription (instance_id);
CREATE INDEX ON instance_subscription (host_id, bound_to) WHERE bound_to IS NOT NULL;
COMMENT ON COLUMN instance_subscription.hash IS 'of the correlation and the values, as publishers work it out';
COMMENT ON COLUMN instance_subscription.bound_to IS 'the host instance in whose memory somebody waits, if so';

ALTER TABLE queue DROP CONSTRAINT queue_pkey;
ALTER TABLE queue ADD COLUMN line integer NOT NULL DEFAULT 0;
ALTER TABLE queue ADD COLUMN instance_id uuid;
ALTER TABLE queue ALTER COLUMN subscription_id TYPE bigint;
ALTER TABLE queue ADD PRIMARY KEY (host_id, line, priority, sequence);
CREATE INDEX ON queue (instance_id) WHERE instance_id IS NOT NULL;
CREATE INDEX ON queue (host_id, line, sequence) WHERE line > 0;
COMMENT ON COLUMN queue.line IS '0 for everybody; the id of an ordered service; minus the id of the one host instance that may take it';
ALTER TABLE claimed ADD COLUMN line integer NOT NULL DEFAULT 0;
ALTER TABLE claimed ADD COLUMN instance_id uuid;
ALTER TABLE claimed ALTER COLUMN subscription_id TYPE bigint;
ALTER TABLE scheduled ADD COLUMN line integer NOT NULL DEFAULT 0;
ALTER TABLE scheduled ADD COLUMN instance_id uuid;
ALTER TABLE scheduled ALTER COLUMN subscription_id TYPE bigint;
CREATE INDEX ON scheduled (instance_id) WHERE instance_id IS NOT NULL;
ALTER TABLE suspended ADD COLUMN instance_id uuid;
ALTER TABLE suspended ADD COLUMN line integer NOT NULL DEFAULT 0;
ALTER TABLE suspended ADD COLUMN reported boolean NOT NULL DEFAULT false;
ALTER TABLE suspended ALTER COLUMN subscription_id TYPE bigint;
ALTER TABLE suspended DROP CONSTRAINT suspensions_are_of_a_known_kind;
ALTER TABLE suspended DROP CONSTRAINT a_suspended_delivery_names_its_service;
ALTER TABLE suspended ADD CONSTRAINT suspensions_are_of_a_known_kind
    CHECK (kind IN ('receive', 'unrouted', 'send', 'stopped', 'response', 'discarded'));
ALTER TABLE suspended ADD CONSTRAINT a_suspended_delivery_names_its_service
    CHECK ((kind IN ('receive', 'unrouted')) = (service_id IS NULL));
CREATE INDEX ON suspended (service_id, sequence) WHERE kind = 'stopped';
CREATE INDEX ON suspended (sequence) WHERE kind = 'unrouted' AND NOT reported;

CREATE TABLE ordered_line (
    service_id     integer     PRIMARY KEY REFERENCES service,
    host_id        smallint    NOT NULL REFERENCES host,
    held_by        integer,
    blocked_until  timestamptz,
    reason         text
);
COMMENT ON TABLE ordered_line IS 'the lease of each ordered service: one host instance at a time, nobody while it is blocked';

CREATE TABLE fragment (
    part_id  uuid    NOT NULL,
    number   integer NOT NULL,
    body     bytea   NOT NULL,
    PRIMARY KEY (part_id, number)
);
ALTER TABLE fragment ALTER COLUMN body SET STORAGE EXTERNAL;

ALTER TABLE part ADD COLUMN id uuid;
ALTER TABLE part ADD COLUMN size bigint;
ALTER TABLE part ADD COLUMN fragments integer NOT NULL DEFAULT 0;
UPDATE part
   SET id = CASE WHEN number = 0 THEN message_id ELSE md5(message_id::text || number)::uuid END,
       size = octet_length(body);
ALTER TABLE message ADD COLUMN parts uuid[];
UPDATE message SET parts = (SELECT array_agg(part.id ORDER BY part.number) FROM part WHERE part.message_id = message.id);
ALTER TABLE message ALTER COLUMN parts SET NOT NULL;
COMMENT ON COLUMN message.parts IS 'the ids of its parts; the first is the body';
ALTER TABLE part DROP CONSTRAINT part_pkey;
ALTER TABLE part DROP COLUMN message_id;
ALTER TABLE part DROP COLUMN number;
ALTER TABLE part ALTER COLUMN id SET NOT NULL;
ALTER TABLE part ALTER COLUMN size SET NOT NULL;
ALTER TABLE part ALTER COLUMN body DROP NOT NULL;
ALTER TABLE part ADD PRIMARY KEY (id);
ALTER TABLE part ADD CONSTRAINT a_part_is_whole_or_in_fragments CHECK ((body IS NULL) = (fragments > 0));

CREATE TABLE reference_log (
    message  smallint NOT NULL DEFAULT 1,
    part     smallint NOT NULL DEFAULT 1,
    CONSTRAINT there_are_two_logs CHECK (message IN (1, 2) AND part IN (1, 2))
);
CREATE UNIQUE INDEX there_is_one_pair_of_active_logs ON reference_log ((true));
INSERT INTO reference_log DEFAULT VALUES;
COMMENT ON TABLE reference_log IS 'which log of each kind is being written; cleanup swaps them';

CREATE TABLE message_ref_log_1 (message_id uuid NOT NULL, delta integer NOT NULL);
CREATE TABLE message_ref_log_2 (message_id uuid NOT NULL, delta integer NOT NULL);
CREATE TABLE part_ref_log_1 (part_id uuid NOT NULL, delta integer NOT NULL);
CREATE TABLE part_ref_log_2 (part_id uuid NOT NULL, delta integer NOT NULL);
CREATE TABLE message_ref_total (message_id uuid PRIMARY KEY, total bigint NOT NULL);
CREATE TABLE part_ref_total (part_id uuid PRIMARY KEY, total bigint NOT NULL);
CREATE INDEX ON message_ref_total (message_id) WHERE total = 0;
CREATE INDEX ON part_ref_total (part_id) WHERE total = 0;
INSERT INTO message_ref_total
SELECT message.id, count(reference.message_id)
  FROM message
  LEFT JOIN (SELECT message_id FROM queue UNION ALL SELECT message_id FROM claimed
             UNION ALL SELECT message_id FROM scheduled UNION ALL SELECT message_id FROM suspended) AS reference
    ON reference.message_id = message.id
 GROUP BY message.id;
INSERT INTO part_ref_total SELECT unnest(parts), 1 FROM message;

CREATE TABLE routing_failure (
    message_id  uuid        PRIMARY KEY,
    report      json        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE routing_failure IS 'the nearest misses of a message that no subscription matched';

CREATE TABLE refusal (
    message_id       uuid        NOT NULL,
    subscription_id  bigint      NOT NULL,
    service_id       integer     NOT NULL,
    host_id          smallint    NOT NULL,
    labels           text[]      NOT NULL,
    refused_at       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON refusal (message_id);
COMMENT ON TABLE refusal IS 'references that were not given, since the host lacks these labels of the message';

CREATE TABLE publication_total (
    location_id  integer PRIMARY KEY,
    received     bigint  NOT NULL,
    published    bigint  NOT NULL,
    unrouted     bigint  NOT NULL,
    suspended    bigint  NOT NULL
);
CREATE TABLE delivery_total (
    service_id  integer PRIMARY KEY,
    count       bigint  NOT NULL
);

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
    FOREACH parent IN ARRAY ARRAY['queue', 'claimed', 'scheduled', 'suspended'] LOOP
        -- Queues turn over quickly: vacuum early, or dead rows slow every claim.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
                        WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000)',
                       parent || '_' || host_number, parent);
        -- Attached, not created in place: that would have to wait for everybody who is publishing.
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%s)',
                       parent, parent || '_' || host_number, host_number);
    END LOOP;
    RETURN host_number;
END $$;

CREATE FUNCTION create_host_role(host_name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    host_number smallint;
    role_name text;
    parent text;
BEGIN
    -- By number: a name may be too long for a role, or the same as another's after it has been cut.
    SELECT host.id, format('crossdock_%s_host_%s', to_hex(box.number), host.id)
      INTO STRICT host_number, role_name
      FROM host, box
     WHERE host.name = host_name;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXECUTE format('COMMENT ON ROLE %I IS %L', role_name, 'may work for the host ' || host_name || ' of one MessageBox');
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA crossdock TO %I', role_name);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA crossdock TO %I', role_name);
    -- Publishing writes to the queues of every host, by the name of the parent; reading them takes the right on the partition.
    EXECUTE format('REVOKE SELECT ON queue, claimed, scheduled, suspended FROM %I', role_name);
    EXECUTE format('GRANT INSERT ON queue, scheduled, suspended, message, part, fragment, publication, refusal, delivery,
                    message_ref_log_1, message_ref_log_2, part_ref_log_1, part_ref_log_2 TO %I', role_name);
    EXECUTE format('GRANT INSERT, UPDATE, DELETE ON instance_subscription, host_instance, ordered_line TO %I', role_name);
    EXECUTE format('GRANT UPDATE (location_id), DELETE, INSERT ON intake TO %I', role_name);
    EXECUTE format('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA crossdock TO %I', role_name);
    FOR parent IN SELECT relname FROM pg_class JOIN pg_inherits ON inhrelid = pg_class.oid
                   WHERE relnamespace = 'crossdock'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('REVOKE ALL ON %I FROM %I', parent, role_name);
    END LOOP;
    FOREACH parent IN ARRAY ARRAY['queue', 'claimed', 'scheduled', 'suspended'] LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO %I', parent || '_' || host_number, role_name);
    END LOOP;
    RETURN role_name;
END $$;
COMMENT ON FUNCTION create_host_role IS 'the role of a host: it reads and takes from the queues of that host only';
