-- The whole schema as it stands. Migrations build it step by step; a test proves that both give the same.

CREATE TABLE box (
    number          bigint      NOT NULL,
    case_sensitive  boolean     NOT NULL,
    epoch           bigint      NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT now(),
    epoch_token     uuid        NOT NULL DEFAULT gen_random_uuid(),
    location_epoch  bigint      NOT NULL DEFAULT 1,
    removals_after  bigint      NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX there_is_one_box ON box ((true));
COMMENT ON COLUMN box.number IS '38 random bits that make message ids differ between MessageBoxes';
COMMENT ON COLUMN box.epoch IS 'moves with every change of subscriptions or configuration';
COMMENT ON COLUMN box.location_epoch IS 'moves with every change of receive locations';
COMMENT ON COLUMN box.removals_after IS 'removals up to this epoch are forgotten: a router older than it is loaded anew';

CREATE TABLE host (
    id      smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text     NOT NULL UNIQUE,
    labels  text[]   NOT NULL DEFAULT '{}'
);

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

CREATE TABLE host_instance (
    id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint    NOT NULL REFERENCES host,
    machine     text        NOT NULL,
    process     integer     NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    class       text        NOT NULL DEFAULT 'messaging' REFERENCES service_class,
    seen_at     timestamptz NOT NULL DEFAULT now(),
    state       text        NOT NULL DEFAULT 'running',
    in_hand     integer     NOT NULL DEFAULT 0,
    delivering  bigint[]    NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE host_instance IS 'an instance lives while its session holds the advisory lock of its id';
COMMENT ON COLUMN host_instance.state IS 'running, throttled (with the reason), stopping, or lost: its process has gone on as another instance';
COMMENT ON COLUMN host_instance.delivering IS 'of the references that a dead instance had in hand those that it is delivering now';

CREATE TABLE application (
    name         text        PRIMARY KEY,
    digest       text        NOT NULL,
    deployed_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE property (
    name  text PRIMARY KEY,
    type  text NOT NULL
);
CREATE UNIQUE INDEX property_names_differ_by_more_than_case ON property (lower(name));

CREATE TABLE receive_location (
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text    NOT NULL UNIQUE,
    application  text    NOT NULL REFERENCES application,
    host_id      smallint NOT NULL REFERENCES host,
    definition   json    NOT NULL,
    enabled      boolean NOT NULL DEFAULT true,
    deployed     boolean NOT NULL DEFAULT true
);

CREATE TABLE send_port_group (
    name         text    PRIMARY KEY,
    application  text    NOT NULL REFERENCES application,
    group_id     uuid    NOT NULL DEFAULT gen_random_uuid(),
    state        text    NOT NULL DEFAULT 'started',
    deployed     boolean NOT NULL DEFAULT true,
    CONSTRAINT groups_are_started_stopped_or_unenlisted CHECK (state IN ('started', 'stopped', 'unenlisted'))
);

CREATE TABLE service (
    id            integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text     NOT NULL UNIQUE,
    application   text     NOT NULL REFERENCES application,
    host_id       smallint NOT NULL REFERENCES host,
    definition    json     NOT NULL,
    class         text     NOT NULL DEFAULT 'messaging' REFERENCES service_class,
    transport_id  uuid     NOT NULL DEFAULT gen_random_uuid(),
    priority      smallint NOT NULL DEFAULT 5,
    ordered       boolean  NOT NULL DEFAULT false,
    two_way       boolean  NOT NULL DEFAULT false,
    predicate     json     NOT NULL DEFAULT '[]',
    state         text     NOT NULL DEFAULT 'started',
    deployed      boolean  NOT NULL DEFAULT true,
    group_name    text     REFERENCES send_port_group,
    port_id       integer  REFERENCES service,
    CONSTRAINT a_member_has_a_group_and_a_port CHECK ((group_name IS NULL) = (port_id IS NULL)),
    CONSTRAINT priorities_are_from_1_to_10 CHECK (priority BETWEEN 1 AND 10),
    CONSTRAINT services_are_started_stopped_or_unenlisted CHECK (state IN ('started', 'stopped', 'unenlisted'))
);
CREATE INDEX ON service (port_id) WHERE port_id IS NOT NULL;
COMMENT ON TABLE service IS 'who can be given messages: a send port, a send port as member of a group, or a two-way receive port that waits for responses';
COMMENT ON COLUMN service.port_id IS 'the send port whose member of a group this is';
COMMENT ON COLUMN service.predicate IS 'its filter as predicate rows, from which enlisting makes the subscription';

CREATE TABLE subscription (
    id          integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id  integer  NOT NULL REFERENCES service,
    host_id     smallint NOT NULL REFERENCES host,
    priority    smallint NOT NULL DEFAULT 5,
    epoch       bigint   NOT NULL DEFAULT 0
);
CREATE INDEX ON subscription (service_id);
CREATE INDEX ON subscription (epoch);

CREATE TABLE subscription_removal (
    subscription_id  integer PRIMARY KEY,
    epoch            bigint  NOT NULL
);
CREATE INDEX ON subscription_removal (epoch);

CREATE TABLE predicate (
    subscription_id  integer  NOT NULL REFERENCES subscription ON DELETE CASCADE,
    group_number     smallint NOT NULL,
    position         smallint NOT NULL,
    property         text     NOT NULL,
    type             text     NOT NULL,
    operator         text     NOT NULL,
    value            text[],
    pass             smallint NOT NULL,
    PRIMARY KEY (subscription_id, group_number, position),
    CONSTRAINT only_existence_has_no_value CHECK ((value IS NULL) = (operator IN ('exists', 'not exists'))),
    CONSTRAINT there_are_two_passes CHECK (pass IN (1, 2))
);

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
    priority        smallint    NOT NULL DEFAULT 0,
    bound_to        integer,
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON instance_subscription (hash);
CREATE INDEX ON instance_subscription (instance_id);
CREATE INDEX ON instance_subscription (host_id, bound_to) WHERE bound_to IS NOT NULL;
COMMENT ON COLUMN instance_subscription.priority IS 'before every activation, whose priorities are from 1 to 10';
COMMENT ON COLUMN instance_subscription.hash IS 'of the correlation and the values, as publishers work it out';
COMMENT ON COLUMN instance_subscription.bound_to IS 'the host instance in whose memory somebody waits, if so';

CREATE TABLE intake (
    sequence     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    location_id  integer     NOT NULL REFERENCES receive_location,
    identity     bytea       NOT NULL,
    size         bigint      NOT NULL,
    listed_at    timestamptz NOT NULL DEFAULT now(),
    attempts     smallint    NOT NULL DEFAULT 0
);
COMMENT ON COLUMN intake.attempts IS 'how often it was tried by itself, after a process had ended: each may have ended one';
CREATE UNIQUE INDEX a_source_is_listed_once ON intake (sha256(identity));

CREATE SEQUENCE express_sequence;

CREATE TABLE publication (
    intake_sequence  bigint      NOT NULL,
    range_start      bigint      NOT NULL,
    location_id      integer     NOT NULL,
    received         integer     NOT NULL,
    published        integer     NOT NULL,
    unrouted         integer     NOT NULL,
    suspended        integer     NOT NULL,
    number           bigint      GENERATED ALWAYS AS IDENTITY,
    published_at     timestamptz NOT NULL DEFAULT now(),
    range_end        bigint,
    last             boolean     NOT NULL DEFAULT true,
    PRIMARY KEY (intake_sequence, range_start),
    CONSTRAINT everything_received_is_accounted_for CHECK (received = published + unrouted + suspended)
);
CREATE INDEX ON publication (number);
COMMENT ON TABLE publication IS 'the key that makes publishing a range of a source happen once, and what came of it';
COMMENT ON COLUMN publication.range_end IS 'where the next range of a large source begins; null for a source that is read whole';
COMMENT ON COLUMN publication.last IS 'with this range all of the source is published';

CREATE TABLE message (
    id          uuid        PRIMARY KEY,
    context     json        NOT NULL,
    part_count  smallint    NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    parts       uuid[]      NOT NULL,
    given       integer     NOT NULL
) WITH (autovacuum_vacuum_insert_threshold = -1);
-- Found by their ids: only their number has to be known.
ALTER TABLE message ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN context SET STATISTICS 0,
    ALTER COLUMN part_count SET STATISTICS 0, ALTER COLUMN created_at SET STATISTICS 0,
    ALTER COLUMN parts SET STATISTICS 0, ALTER COLUMN given SET STATISTICS 0;
COMMENT ON COLUMN message.parts IS 'the ids of its parts; the first is the body';
COMMENT ON COLUMN message.given IS 'references it was published with; what came and went since is in the logs, until there is a total';

CREATE TABLE part (
    name       text    NOT NULL,
    body       bytea,
    id         uuid    PRIMARY KEY,
    size       bigint  NOT NULL,
    fragments  integer NOT NULL DEFAULT 0,
    given      integer NOT NULL DEFAULT 1,
    CONSTRAINT a_part_is_whole_or_in_fragments CHECK ((body IS NULL) = (fragments > 0))
) WITH (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE part ALTER COLUMN name SET STATISTICS 0, ALTER COLUMN body SET STATISTICS 0,
    ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN size SET STATISTICS 0,
    ALTER COLUMN fragments SET STATISTICS 0, ALTER COLUMN given SET STATISTICS 0;
COMMENT ON COLUMN part.given IS 'messages it was stored with; likewise';

CREATE TABLE fragment (
    part_id  uuid    NOT NULL,
    number   integer NOT NULL,
    body     bytea   NOT NULL,
    PRIMARY KEY (part_id, number)
);
ALTER TABLE fragment ALTER COLUMN body SET STORAGE EXTERNAL;


CREATE SEQUENCE reference_sequence;

CREATE TABLE queue (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL DEFAULT nextval('reference_sequence'),
    priority         smallint    NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  bigint      NOT NULL,
    service_id       integer     NOT NULL,
    attempt          smallint    NOT NULL DEFAULT 0,
    line             integer     NOT NULL DEFAULT 0,
    instance_id      uuid,
    deaths           smallint    NOT NULL DEFAULT 0,
    PRIMARY KEY (host_id, line, priority, sequence)
) PARTITION BY LIST (host_id);
CREATE INDEX ON queue (instance_id) WHERE instance_id IS NOT NULL;
CREATE INDEX ON queue (host_id, line, sequence) WHERE line > 0;
COMMENT ON COLUMN queue.line IS '0 for everybody; the id of an ordered service; minus the id of the one host instance that may take it';

COMMENT ON COLUMN queue.deaths IS 'how many processes have ended that had it in hand: the first in any way, the others while they delivered it';

CREATE TABLE claimed (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL,
    priority         smallint    NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  bigint      NOT NULL,
    service_id       integer     NOT NULL,
    attempt          smallint    NOT NULL,
    claimed_by       integer     NOT NULL,
    claimed_at       timestamptz NOT NULL,
    line             integer     NOT NULL DEFAULT 0,
    instance_id      uuid,
    deaths           smallint    NOT NULL DEFAULT 0,
    PRIMARY KEY (host_id, sequence)
) PARTITION BY LIST (host_id);

CREATE TABLE scheduled (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL,
    priority         smallint    NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  bigint      NOT NULL,
    service_id       integer     NOT NULL,
    attempt          smallint    NOT NULL,
    due_at           timestamptz NOT NULL,
    reason           text        NOT NULL,
    line             integer     NOT NULL DEFAULT 0,
    instance_id      uuid,
    PRIMARY KEY (host_id, sequence)
) PARTITION BY LIST (host_id);
CREATE INDEX ON scheduled (host_id, due_at);
CREATE INDEX ON scheduled (instance_id) WHERE instance_id IS NOT NULL;

CREATE TABLE suspended (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL DEFAULT nextval('reference_sequence'),
    kind             text        NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  bigint,
    service_id       integer,
    priority         smallint    NOT NULL DEFAULT 5,
    attempt          smallint    NOT NULL DEFAULT 0,
    reason           text        NOT NULL,
    suspended_at     timestamptz NOT NULL DEFAULT now(),
    instance_id      uuid,
    line             integer     NOT NULL DEFAULT 0,
    reported         boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (host_id, sequence),
    CONSTRAINT suspensions_are_of_a_known_kind
        CHECK (kind IN ('receive', 'unrouted', 'send', 'stopped', 'response', 'discarded')),
    CONSTRAINT a_suspended_delivery_names_its_service CHECK ((kind IN ('receive', 'unrouted')) = (service_id IS NULL))
) PARTITION BY LIST (host_id);
CREATE INDEX ON suspended (message_id);
CREATE INDEX ON suspended (service_id, sequence) WHERE kind = 'stopped';
CREATE INDEX ON suspended (sequence) WHERE kind = 'unrouted' AND NOT reported;

CREATE TABLE ordered_line (
    service_id     integer     PRIMARY KEY REFERENCES service,
    host_id        smallint    NOT NULL REFERENCES host,
    held_by        integer,
    blocked_until  timestamptz,
    reason         text,
    blocked_by     bigint,
    held_at        timestamptz NOT NULL DEFAULT '-infinity'
);
CREATE INDEX ON ordered_line (host_id, held_at, service_id);
COMMENT ON COLUMN ordered_line.held_at IS 'when it was taken last: the line that has waited longest is the next';
COMMENT ON COLUMN ordered_line.blocked_by IS 'the suspended reference that has to be dealt with before the line goes on';
COMMENT ON TABLE ordered_line IS 'the lease of each ordered service: one host instance at a time, nobody while it is blocked';

CREATE TABLE delivery (
    number        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id    integer     NOT NULL,
    count         integer     NOT NULL,
    delivered_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE delivery IS 'how many references each settled batch delivered, per service';

CREATE TABLE reference_log (
    message  smallint NOT NULL DEFAULT 1,
    part     smallint NOT NULL DEFAULT 1,
    CONSTRAINT there_are_two_logs CHECK (message IN (1, 2) AND part IN (1, 2))
);
CREATE UNIQUE INDEX there_is_one_pair_of_active_logs ON reference_log ((true));
INSERT INTO reference_log DEFAULT VALUES;
COMMENT ON TABLE reference_log IS 'which log of each kind is being written; cleanup swaps them';

CREATE TABLE message_ref_log_1 (message_id uuid NOT NULL, delta integer NOT NULL) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE message_ref_log_2 (message_id uuid NOT NULL, delta integer NOT NULL) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE part_ref_log_1 (part_id uuid NOT NULL, delta integer NOT NULL) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE part_ref_log_2 (part_id uuid NOT NULL, delta integer NOT NULL) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE message_ref_total (message_id uuid PRIMARY KEY, living bigint NOT NULL);
CREATE TABLE part_ref_total (part_id uuid PRIMARY KEY, living bigint NOT NULL);
CREATE INDEX ON message_ref_total (message_id) WHERE living <= 0;
CREATE INDEX ON part_ref_total (part_id) WHERE living <= 0;

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

CREATE FUNCTION create_host(host_name text) RETURNS smallint LANGUAGE plpgsql AS $$
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
    EXECUTE format('GRANT UPDATE (location_id, attempts), DELETE, INSERT ON intake TO %I', role_name);
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
BEGIN
    -- First something is written, and the transaction has its number, before the references draw theirs.
    INSERT INTO message (id, context, part_count, parts, given)
    SELECT message.id, message.context, cardinality(own.parts), own.parts, cardinality(array_positions(references_to, message.id))
      FROM unnest(message_ids, contexts) AS message (id, context)
     CROSS JOIN LATERAL (SELECT ARRAY(SELECT part.id
                                        FROM unnest(part_of, part_ids) WITH ORDINALITY AS part (message_id, id, number)
                                       WHERE part.message_id = message.id
                                       ORDER BY part.number) AS parts) AS own;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT part.id, part.name, part.body, length(part.body), 0 FROM unnest(part_ids, names, bodies) AS part (id, name, body);
    INSERT INTO queue (host_id, line, priority, message_id, subscription_id, service_id)
    SELECT * FROM unnest(hosts, lines, priorities, references_to, subscriptions, services);
    PERFORM check_epoch(publishing, matched, read_by);
END $$;
COMMENT ON FUNCTION publish_few IS 'a few messages, all of which go to queues: everything that publishing writes, in one round trip';

CREATE FUNCTION drop_references(messages uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT message FROM reference_log) = 1 THEN
        INSERT INTO message_ref_log_1 SELECT id, -1 FROM unnest(messages) AS reference (id);
    ELSE
        INSERT INTO message_ref_log_2 SELECT id, -1 FROM unnest(messages) AS reference (id);
    END IF;
END $$;
COMMENT ON FUNCTION drop_references IS 'one reference less to each of these messages, in the log that is being written';
