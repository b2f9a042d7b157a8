-- The whole schema as it stands. Migrations build it step by step; a test proves that both give the same.

CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN now();
COMMENT ON FUNCTION clock IS 'the time, for all processes: no other clock is asked. PostgreSQL puts its body in its place; a test may replace it';

CREATE TABLE box (
    number          bigint      NOT NULL,
    case_sensitive  boolean     NOT NULL,
    epoch           bigint      NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT clock(),
    epoch_token     uuid        NOT NULL DEFAULT gen_random_uuid(),
    removals_after  bigint      NOT NULL DEFAULT 0,
    location_token  uuid        NOT NULL DEFAULT gen_random_uuid(),
    functions       text        NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX there_is_one_box ON box ((true));
COMMENT ON COLUMN box.number IS '38 random bits that make the names of roles differ between MessageBoxes';
COMMENT ON COLUMN box.epoch IS 'moves with every change of subscriptions or configuration';
COMMENT ON COLUMN box.removals_after IS 'removals up to this epoch are forgotten: a router older than it is loaded anew';
COMMENT ON COLUMN box.location_token IS 'changes with every change of receive locations';
COMMENT ON COLUMN box.functions IS 'the digest of the statements of which the functions of the hosts were made';

CREATE TABLE epoch_history (
    epoch  bigint PRIMARY KEY,
    token  uuid   NOT NULL
);
COMMENT ON TABLE epoch_history IS 'the tokens of the present epoch and of those before it';

CREATE TABLE host (
    id        smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text     NOT NULL UNIQUE,
    labels    text[]   NOT NULL DEFAULT '{}',
    labelled  boolean  NOT NULL DEFAULT false
);
COMMENT ON COLUMN host.labelled IS 'has labels or had some: only then what is here may carry any, and is looked at where it moves';

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
    id          integer     PRIMARY KEY,
    host_id     smallint    NOT NULL REFERENCES host,
    machine     text        NOT NULL,
    process     integer     NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT clock(),
    class       text        NOT NULL DEFAULT 'messaging' REFERENCES service_class,
    seen_at     timestamptz NOT NULL DEFAULT clock(),
    state       text        NOT NULL DEFAULT 'running',
    in_hand     integer     NOT NULL DEFAULT 0,
    delivering  bigint[]    NOT NULL DEFAULT '{}',
    CONSTRAINT instances_are_in_a_known_state CHECK (state IN ('running', 'throttled', 'stuck', 'stopping', 'lost'))
);
COMMENT ON TABLE host_instance IS 'an instance lives while its session holds the advisory lock of its id';
COMMENT ON COLUMN host_instance.id IS 'drawn at random by the process, so that it is not given again after a restore';
COMMENT ON COLUMN host_instance.state IS 'running, throttled (takes no more), stuck (nothing of what it has moves), stopping, or lost: its process has gone on as another instance';
COMMENT ON COLUMN host_instance.delivering IS 'of the references that a dead instance had in hand those that it is delivering now';

CREATE TABLE application (
    name         text        PRIMARY KEY,
    digest       text        NOT NULL,
    deployed_at  timestamptz NOT NULL DEFAULT clock()
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
    created_at      timestamptz NOT NULL DEFAULT clock()
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
    listed_at    timestamptz NOT NULL DEFAULT clock(),
    attempts     smallint    NOT NULL DEFAULT 0,
    random_bits  bigint      NOT NULL,
    due_at       timestamptz NOT NULL DEFAULT '-infinity',
    claimed_by   integer     NOT NULL DEFAULT 0,
    failures     integer     NOT NULL DEFAULT 0,
    reason       text,
    CONSTRAINT failed_sources_have_a_reason CHECK ((failures > 0) = (reason IS NOT NULL))
) WITH (fillfactor = 45);
COMMENT ON COLUMN intake.random_bits IS '38 random bits in the ids of its messages, drawn by whoever lists it';
COMMENT ON COLUMN intake.attempts IS 'how often it was tried by itself, after a process had ended: each may have ended one';
COMMENT ON COLUMN intake.due_at IS 'not read before this time; a source that never failed is due at once';
COMMENT ON COLUMN intake.claimed_by IS 'the number whose advisory lock the pipeline holds that reads it or has read it; 0 for nobody';
COMMENT ON COLUMN intake.failures IS 'how often it could not be read';
COMMENT ON COLUMN intake.reason IS 'why it could not be read, the last time';
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
    published_at     timestamptz NOT NULL DEFAULT clock(),
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
    created_at  timestamptz NOT NULL DEFAULT clock(),
    parts       uuid[]      NOT NULL,
    reference_count integer     NOT NULL
) WITH (autovacuum_vacuum_insert_threshold = -1);
-- Found by their ids: only their number has to be known.
ALTER TABLE message ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN context SET STATISTICS 0,
    ALTER COLUMN part_count SET STATISTICS 0, ALTER COLUMN created_at SET STATISTICS 0,
    ALTER COLUMN parts SET STATISTICS 0, ALTER COLUMN reference_count SET STATISTICS 0;
COMMENT ON COLUMN message.parts IS 'the ids of its parts; the first is the body';
COMMENT ON COLUMN message.reference_count IS 'references it was published with; what came and went since is in the logs, until there is a total';

CREATE TABLE part (
    name       text    NOT NULL,
    body       bytea,
    id         uuid    PRIMARY KEY,
    size       bigint  NOT NULL,
    fragments  integer NOT NULL DEFAULT 0,
    reference_count integer NOT NULL DEFAULT 1,
    CONSTRAINT a_part_is_whole_or_in_fragments CHECK ((body IS NULL) = (fragments > 0))
) WITH (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE part ALTER COLUMN name SET STATISTICS 0, ALTER COLUMN body SET STATISTICS 0,
    ALTER COLUMN id SET STATISTICS 0, ALTER COLUMN size SET STATISTICS 0,
    ALTER COLUMN fragments SET STATISTICS 0, ALTER COLUMN reference_count SET STATISTICS 0;
COMMENT ON COLUMN part.reference_count IS 'messages it was stored with; likewise';

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
    subqueue             integer     NOT NULL DEFAULT 0,
    instance_id      uuid,
    deaths           smallint    NOT NULL DEFAULT 0,
    PRIMARY KEY (host_id, subqueue, priority, sequence)
) PARTITION BY LIST (host_id);
CREATE INDEX ON queue (instance_id) WHERE instance_id IS NOT NULL;
CREATE INDEX ON queue (host_id, subqueue, sequence) WHERE subqueue > 0;
COMMENT ON COLUMN queue.subqueue IS '0 for everybody; the id of an ordered service; minus the id of the one host instance that may take it';

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
    subqueue             integer     NOT NULL DEFAULT 0,
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
    subqueue             integer     NOT NULL DEFAULT 0,
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
    suspended_at     timestamptz NOT NULL DEFAULT clock(),
    instance_id      uuid,
    subqueue             integer     NOT NULL DEFAULT 0,
    reported         boolean     NOT NULL DEFAULT false,
    code             text        NOT NULL,
    PRIMARY KEY (host_id, sequence),
    CONSTRAINT suspensions_are_of_a_known_kind
        CHECK (kind IN ('receive', 'unrouted', 'send', 'stopped', 'response', 'discarded')),
    CONSTRAINT a_suspended_delivery_names_its_service CHECK ((kind IN ('receive', 'unrouted')) = (service_id IS NULL))
) PARTITION BY LIST (host_id);
COMMENT ON COLUMN suspended.code IS 'the code of the error, as errors.py has it';
CREATE INDEX ON suspended (message_id);
CREATE INDEX ON suspended (service_id, sequence) WHERE kind = 'stopped';
CREATE INDEX ON suspended (sequence) WHERE kind = 'unrouted' AND NOT reported;

CREATE TABLE subqueue_lease (
    service_id     integer     PRIMARY KEY REFERENCES service,
    host_id        smallint    NOT NULL REFERENCES host,
    held_by        integer,
    blocked_until  timestamptz,
    reason         text,
    blocked_by     bigint,
    held_at        timestamptz NOT NULL DEFAULT '-infinity',
    claim          bigint      NOT NULL DEFAULT 0
);
CREATE INDEX ON subqueue_lease (host_id, held_at, service_id);
COMMENT ON COLUMN subqueue_lease.held_at IS 'when it was taken last, later than all others of its host: the subqueue that has waited longest is the next';
COMMENT ON COLUMN subqueue_lease.blocked_by IS 'the suspended reference that has to be dealt with before the subqueue goes on';
COMMENT ON COLUMN subqueue_lease.claim IS 'the claim that was made when it was taken last';
COMMENT ON TABLE subqueue_lease IS 'the lease of each ordered service: one host instance at a time, nobody while it is blocked';

CREATE TABLE delivery (
    number        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id    integer     NOT NULL,
    count         integer     NOT NULL,
    delivered_at  timestamptz NOT NULL DEFAULT clock()
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
    created_at  timestamptz NOT NULL DEFAULT clock()
);
COMMENT ON TABLE routing_failure IS 'the nearest misses of a message that no subscription matched';

CREATE TABLE refusal (
    message_id       uuid        NOT NULL,
    subscription_id  bigint      NOT NULL,
    service_id       integer     NOT NULL,
    host_id          smallint    NOT NULL,
    labels           text[]      NOT NULL,
    refused_at       timestamptz NOT NULL DEFAULT clock()
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

CREATE FUNCTION host_role(host_number smallint) RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    -- By number: a name may be too long for a role, or the same as another's after it has been cut.
    SELECT format('crossdock_%s_host_%s', to_hex(number), host_number) FROM box;
END;
COMMENT ON FUNCTION host_role IS 'the name of the role that may work for a host; there may be none of that name';

CREATE FUNCTION own_hosts(who name) RETURNS smallint[] LANGUAGE sql STABLE
BEGIN ATOMIC
    -- The name as host_role gives it: to call that for each host takes several times as long.
    SELECT array_agg(host.id)
      FROM host, box
     WHERE pg_has_role(who, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER')
        OR coalesce(pg_has_role(who, to_regrole(format('crossdock_%s_host_%s', to_hex(box.number), host.id))::oid, 'MEMBER'),
                    false);
END;
COMMENT ON FUNCTION own_hosts IS 'the hosts a database user may work for: all for the owner of the MessageBox';

-- What a host role may change is its own; whom publishers give messages to, and who lives, everybody has to see. A policy
-- asks once in a statement, not for each row, and it does not concern the owner.
ALTER TABLE host_instance ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_instances ON host_instance USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[]));
CREATE POLICY everybody_is_seen ON host_instance FOR SELECT USING (true);

ALTER TABLE instance_subscription ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_subscriptions ON instance_subscription
    USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[]))
    WITH CHECK (EXISTS (SELECT
                          FROM service
                         WHERE service.id = instance_subscription.service_id
                           AND service.host_id = instance_subscription.host_id
                           AND service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[])));

ALTER TABLE subqueue_lease ENABLE ROW LEVEL SECURITY;
-- A service may have moved while an instance held its subqueue: the instance still has to give it up.
CREATE POLICY own_leases ON subqueue_lease FOR UPDATE
    USING (host_id = ANY ((SELECT own_hosts(current_user))::smallint[])
           OR held_by IN (SELECT id FROM host_instance
                           WHERE host_id = ANY ((SELECT own_hosts(current_user))::smallint[])))
    WITH CHECK (true);
CREATE POLICY everybody_is_seen ON subqueue_lease FOR SELECT USING (true);

CREATE VIEW service_definition WITH (security_barrier) AS
SELECT id, host_id, class,
       CASE WHEN host_id = ANY ((SELECT own_hosts(current_user))::smallint[]) THEN definition END AS definition
  FROM service;
COMMENT ON VIEW service_definition IS 'what a process needs to send: definitions may hold secrets, and only those of its own hosts are shown';

CREATE VIEW location_definition WITH (security_barrier) AS
SELECT id, host_id, enabled, definition
  FROM receive_location
 WHERE host_id = ANY ((SELECT own_hosts(current_user))::smallint[]);
COMMENT ON VIEW location_definition IS 'what a process needs to receive, of its own hosts';

CREATE VIEW delivery_count WITH (security_barrier) AS
SELECT service.host_id, service.name, sum(done.count)::bigint AS count
  FROM service
  JOIN (SELECT service_id, count FROM delivery
         UNION ALL
        SELECT service_id, count FROM delivery_total) AS done ON done.service_id = service.id
 WHERE service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[])
 GROUP BY service.id;
COMMENT ON VIEW delivery_count IS 'how many references were delivered for each service of its own hosts';

CREATE FUNCTION count_express(
    locations integer[], received integer[], published integer[], unrouted integer[], suspended integer[]
) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp
BEGIN ATOMIC
    INSERT INTO publication (intake_sequence, range_start, location_id, received, published, unrouted, suspended)
    SELECT -nextval('express_sequence'), 0, counted.*
      FROM unnest(locations, received, published, unrouted, suspended) AS counted (location, received, published, unrouted, suspended)
      JOIN receive_location ON receive_location.id = counted.location
     WHERE receive_location.host_id = ANY (own_hosts(session_user))
       AND least(counted.published, counted.unrouted, counted.suspended) >= 0;
END;
REVOKE ALL ON FUNCTION count_express FROM PUBLIC;
COMMENT ON FUNCTION count_express IS 'count what was received without a source in the ledger: by the owner, since nobody else may write publications';

CREATE FUNCTION subqueue_may_go_on(ordered_service integer, blocking bigint) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, crossdock, pg_temp
BEGIN ATOMIC
    -- At every host: what blocks a subqueue may be at one that the service has left since.
    SELECT CASE WHEN blocking > 0
                THEN NOT EXISTS (SELECT
                                   FROM host
                                   JOIN suspended ON suspended.host_id = host.id AND suspended.sequence = blocking)
                ELSE NOT EXISTS (SELECT
                                   FROM claimed
                                   JOIN service ON service.id = claimed.service_id
                                  WHERE coalesce(service.port_id, service.id) = ordered_service AND claimed.subqueue = 0)
                 AND NOT EXISTS (SELECT
                                   FROM scheduled
                                   JOIN service ON service.id = scheduled.service_id
                                  WHERE coalesce(service.port_id, service.id) = ordered_service AND scheduled.subqueue = 0)
           END;
END;
REVOKE ALL ON FUNCTION subqueue_may_go_on FROM PUBLIC;
COMMENT ON FUNCTION subqueue_may_go_on IS 'whether what blocks an ordered subqueue is no longer there: a suspended reference, or with 0 what began before it was ordered';

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

CREATE FUNCTION check_epoch(publishing integer, matched uuid, read_by uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(publishing);
    IF NOT EXISTS (SELECT FROM box WHERE epoch_token = matched AND location_token = coalesce(read_by, location_token)) THEN
        RAISE EXCEPTION 'The epoch has moved.' USING ERRCODE = 'CX001';
    END IF;
END $$;
COMMENT ON FUNCTION check_epoch IS 'the last step of publishing, where the answer is not waited for: it fails if the epoch has moved';

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

CREATE FUNCTION why_withheld(message_number uuid, host_number smallint) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT format('The host %s lacks the label %s of this message. Give it the label, or give the port another host; then '
                  'resume the message.', host.name, string_agg(label, ', ' ORDER BY label))
      FROM message, host,
           -- No text of PostgreSQL holds \u0000, and labels have none: whatever stands for it, they stay as they are.
           LATERAL (SELECT CASE WHEN context::text LIKE '%"labels"%'
                                THEN replace(context::text, '\u0000', '\ufffd')::json -> 'labels' END AS labels) AS found,
           json_array_elements_text(CASE WHEN json_typeof(found.labels) = 'array' THEN found.labels END) AS label
     WHERE message.id = message_number AND host.id = host_number AND label <> ALL (host.labels)
     GROUP BY host.name
$$;
COMMENT ON FUNCTION why_withheld IS 'why a host must not be given a message: it lacks labels; null if it has them all';

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
COMMENT ON TYPE moving IS 'a reference that was taken from where it was, and what becomes of it: queued, resumed, scheduled or suspended';

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
COMMENT ON FUNCTION move_references IS 'references go to the host that has their service now, and into its subqueue if it is ordered, except what only one host instance may take; gives those that are queued';

CREATE FUNCTION withhold_labelled(host_number smallint) RETURNS void LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION withhold_labelled IS 'a host has lost labels: what waits there and carries them is suspended';
