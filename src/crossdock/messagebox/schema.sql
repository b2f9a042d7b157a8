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
    functions       text        NOT NULL DEFAULT '',
    moved_by        xid8
);
CREATE UNIQUE INDEX there_is_one_box ON box ((true));
COMMENT ON COLUMN box.moved_by IS 'the transaction that moved the epoch last';
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
    stepping    uuid[]      NOT NULL DEFAULT '{}',
    stepping_alone uuid[]   NOT NULL DEFAULT '{}',
    CONSTRAINT instances_are_in_a_known_state CHECK (state IN ('running', 'throttled', 'stuck', 'stopping', 'lost')),
    CONSTRAINT instances_are_seen_in_our_time CHECK (seen_at BETWEEN '1970-01-01Z' AND '9999-01-01Z')
);
COMMENT ON TABLE host_instance IS 'an instance lives while its session holds the advisory lock of its id';
ALTER TABLE host_instance ADD CONSTRAINT the_name_of_a_machine_is_short CHECK (octet_length(machine) <= 1024) NOT VALID;
COMMENT ON COLUMN host_instance.id IS 'drawn at random by the process, so that it is not given again after a restore';
COMMENT ON COLUMN host_instance.state IS 'running, throttled (takes no more), stuck (nothing of what it has moves), stopping, or lost: its process has gone on as another instance';
COMMENT ON COLUMN host_instance.delivering IS 'of the references that a dead instance had in hand those that it is delivering now';
COMMENT ON COLUMN host_instance.stepping IS 'the instances of orchestrations whose timers it has in hand: no claim says so';
COMMENT ON COLUMN host_instance.stepping_alone IS 'of these the ones that it tries alone, since a dead host instance had them in hand';

CREATE TABLE application (
    name         text        PRIMARY KEY,
    digest       text        NOT NULL,
    deployed_at  timestamptz NOT NULL DEFAULT clock(),
    deployed     boolean     NOT NULL DEFAULT true
);
COMMENT ON COLUMN application.deployed IS 'false once it was undeployed: what it left is suspended, and is not resumed before it is deployed again';

CREATE TABLE property (
    name      text    PRIMARY KEY,
    type      text    NOT NULL,
    personal  boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX property_names_differ_by_more_than_case ON property (lower(name));
COMMENT ON COLUMN property.personal IS 'its values are kept apart in the track, where whoever reads them needs a grant of its own';

CREATE TABLE receive_location (
    id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text    NOT NULL UNIQUE,
    application  text    NOT NULL REFERENCES application,
    host_id      smallint NOT NULL REFERENCES host,
    definition   json    NOT NULL,
    enabled      boolean NOT NULL DEFAULT true,
    deployed     boolean NOT NULL DEFAULT true,
    track        text    NOT NULL DEFAULT 'events',
    CONSTRAINT nothing_events_or_bodies_are_tracked CHECK (track IN ('off', 'events', 'bodies'))
);
CREATE INDEX ON receive_location (track, id) WHERE track <> 'events';

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
    receives      json     NOT NULL DEFAULT '[]',
    version       text,
    versions      text[]   NOT NULL DEFAULT '{}',
    subqueue      integer  GENERATED ALWAYS AS (CASE WHEN class = 'orchestration' THEN (-2147483648)::integer
                                                     WHEN ordered THEN coalesce(port_id, id)
                                                     ELSE 0 END) STORED,
    track         text     NOT NULL DEFAULT 'events',
    CONSTRAINT nothing_events_or_bodies_are_tracked CHECK (track IN ('off', 'events', 'bodies')),
    CONSTRAINT a_member_has_a_group_and_a_port CHECK ((group_name IS NULL) = (port_id IS NULL)),
    CONSTRAINT priorities_are_from_1_to_10 CHECK (priority BETWEEN 1 AND 10),
    CONSTRAINT services_are_started_stopped_or_unenlisted CHECK (state IN ('started', 'stopped', 'unenlisted'))
);
CREATE INDEX ON service (port_id) WHERE port_id IS NOT NULL;
CREATE INDEX ON service (track, id) WHERE track <> 'events';
COMMENT ON TABLE service IS 'who can be given messages: a send port, a send port as member of a group, a two-way receive port that waits for responses, or an orchestration';
COMMENT ON COLUMN service.receives IS 'what activates an orchestration, and the correlations that each initializes: publishers read it';
COMMENT ON COLUMN service.version IS 'the code that new instances of an orchestration run';
COMMENT ON COLUMN service.versions IS 'every version that an orchestration has had: its instances run these, and no other';
COMMENT ON COLUMN service.subqueue IS 'where its references wait: orchestrations have one of their own at each host';
COMMENT ON COLUMN service.port_id IS 'the send port whose member of a group this is';
COMMENT ON COLUMN service.predicate IS 'its filter as predicate rows, from which enlisting makes the subscription';

CREATE TABLE subscription (
    id          integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id  integer  NOT NULL REFERENCES service,
    host_id     smallint NOT NULL REFERENCES host,
    priority    smallint NOT NULL DEFAULT 5,
    epoch       bigint   NOT NULL DEFAULT 0,
    enlisted_after bigint NOT NULL DEFAULT 0
);
CREATE INDEX ON subscription (service_id);
CREATE INDEX ON subscription (epoch);
COMMENT ON COLUMN subscription.enlisted_after IS 'the last reference that was drawn before it was enlisted: those up to it are of messages that it was not given';

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

CREATE TABLE subscription_version (
    subscription_id  integer     NOT NULL,
    service_id       integer     NOT NULL,
    service          text        NOT NULL,
    application      text        NOT NULL,
    predicate        json        NOT NULL,
    priority         smallint    NOT NULL,
    from_epoch       bigint      NOT NULL,
    until_epoch      bigint,
    from_at          timestamptz NOT NULL DEFAULT clock(),
    until_at         timestamptz,
    number           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    CONSTRAINT a_version_ends_once CHECK ((until_epoch IS NULL) = (until_at IS NULL))
);
CREATE INDEX ON subscription_version (subscription_id);
CREATE INDEX ON subscription_version (until_epoch);
COMMENT ON TABLE subscription_version IS 'the subscriptions of every epoch of which a message is tracked, as they were then';
COMMENT ON COLUMN subscription_version.predicate IS 'its predicate rows: group 0 is its address, the others are the filter';
COMMENT ON COLUMN subscription_version.until_epoch IS 'the first epoch in which it is gone or another; null for what is enlisted now';

CREATE TABLE erased_message (
    message_id  uuid        PRIMARY KEY,
    erased_at   timestamptz NOT NULL DEFAULT clock()
);
COMMENT ON TABLE erased_message IS 'messages whose properties and bodies no reader of the track shows any more, until they are rewritten without them';

CREATE TABLE correlation (
    id          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    property    text[]  NOT NULL,
    service_id  integer REFERENCES service,
    name        text,
    types       text[],
    CONSTRAINT a_correlation_of_an_orchestration_has_a_name_and_types
        CHECK ((service_id IS NULL) = (name IS NULL) AND (service_id IS NULL) = (types IS NULL))
);
CREATE UNIQUE INDEX properties_correlate_for_everybody_once ON correlation (property) WHERE service_id IS NULL;
CREATE UNIQUE INDEX an_orchestration_has_a_correlation_once ON correlation (service_id, name, property, types);
COMMENT ON TABLE correlation IS 'the sets of properties by which instance subscriptions correlate';
COMMENT ON COLUMN correlation.types IS 'of messages that may follow; null for any, as responses do';

CREATE FUNCTION correlation_of(hash uuid) RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || left(hash::text, 8))::bit(32)::integer;
COMMENT ON FUNCTION correlation_of IS 'the correlation that a hash begins with: nobody waits by the values of others';

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
ALTER TABLE instance_subscription ADD CONSTRAINT what_is_waited_for_is_as_large_as_a_context
    CHECK (octet_length(value::text) <= 1048576) NOT VALID;
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
    counted          boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (intake_sequence, range_start),
    CONSTRAINT everything_received_is_accounted_for CHECK (received = published + unrouted + suspended)
);
CREATE INDEX ON publication (number);
CREATE INDEX publication_to_be_counted ON publication (location_id) WHERE NOT counted;
COMMENT ON TABLE publication IS 'the key that makes publishing a range of a source happen once, and what came of it';
COMMENT ON COLUMN publication.range_end IS 'where the next range of a large source begins; null for a source that is read whole';
COMMENT ON COLUMN publication.last IS 'with this range all of the source is published';
COMMENT ON COLUMN publication.counted IS 'it is in the totals: its source is still known, and may be for long';

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
-- Whoever is given a message has these in memory. What was there before these rules was not looked at again.
ALTER TABLE part
    ADD CONSTRAINT a_part_is_as_large_as_it_says CHECK (size = octet_length(body) AND octet_length(body) <= 1048576) NOT VALID,
    ADD CONSTRAINT the_name_of_a_part_is_short CHECK (octet_length(name) <= 1024) NOT VALID;
ALTER TABLE fragment ADD CONSTRAINT a_fragment_is_held_at_once CHECK (octet_length(body) <= 1048576) NOT VALID;


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
COMMENT ON COLUMN queue.subqueue IS '0 for everybody; the id of an ordered service; minus the id of the one host instance that may take it; the lowest number for orchestrations';

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
CREATE INDEX ON claimed (instance_id) WHERE instance_id IS NOT NULL;

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
ALTER TABLE scheduled
    ADD CONSTRAINT deliveries_are_due_in_our_time CHECK (due_at BETWEEN '1970-01-01Z' AND '9999-01-01Z') NOT VALID;
ALTER TABLE scheduled ADD CONSTRAINT the_reason_to_wait_is_short CHECK (octet_length(reason) <= 65536) NOT VALID;
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
ALTER TABLE suspended ADD CONSTRAINT the_texts_of_a_suspension_are_short
    CHECK (octet_length(reason) <= 65536 AND octet_length(code) <= 1024) NOT VALID;
COMMENT ON COLUMN suspended.code IS 'the code of the error, as errors.py has it';
CREATE INDEX ON suspended (message_id);
CREATE INDEX ON suspended (service_id, sequence) WHERE kind = 'stopped';
CREATE INDEX ON suspended (sequence) WHERE kind = 'unrouted' AND NOT reported;
CREATE INDEX ON suspended (sequence);

CREATE TABLE orchestration_version (
    digest       text        PRIMARY KEY,
    application  text        NOT NULL REFERENCES application,
    bundle       bytea       NOT NULL,
    packages     json        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock()
);
COMMENT ON TABLE orchestration_version IS 'the code of orchestrations: hosts execute it, so only the owner of the MessageBox writes it';

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
ALTER TABLE instance ADD CONSTRAINT the_texts_of_an_instance_are_short
    CHECK (greatest(octet_length(waiting_for), octet_length(line), octet_length(reason), octet_length(traceback)) <= 131072
           AND octet_length(code) <= 1024) NOT VALID;
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
    asleep       boolean     NOT NULL DEFAULT false,
    deaths       smallint    NOT NULL DEFAULT 0,
    PRIMARY KEY (host_id, instance_id, number),
    CONSTRAINT timers_are_due_in_our_time CHECK (due_at BETWEEN '1970-01-01Z' AND '9999-12-31 23:59:59.999999Z')
) PARTITION BY LIST (host_id);
CREATE INDEX ON timer (host_id, due_at) WHERE NOT asleep;
COMMENT ON COLUMN timer.asleep IS 'its instance is suspended: nobody looks at the timer until that is resumed or cancelled';
COMMENT ON COLUMN timer.deaths IS 'processes that ended with the timer in hand, and while it was tried alone';
COMMENT ON COLUMN timer.number IS '0 wakes an instance that was resumed or is to be cancelled';

CREATE TABLE convoy (
    hash         uuid     PRIMARY KEY,
    instance_id  uuid     NOT NULL,
    host_id      smallint NOT NULL
);
CREATE INDEX ON convoy (instance_id);
COMMENT ON TABLE convoy IS 'the one instance that messages with these values begin or join';

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
ALTER TABLE subqueue_lease ADD CONSTRAINT ports_are_blocked_in_our_time
    CHECK (blocked_by IS NOT NULL OR blocked_until BETWEEN '1970-01-01Z' AND '9999-01-01Z') NOT VALID;
ALTER TABLE subqueue_lease ADD CONSTRAINT the_reason_of_a_block_is_short CHECK (octet_length(reason) <= 65536) NOT VALID;
CREATE INDEX ON subqueue_lease (host_id, held_at, service_id);
COMMENT ON COLUMN subqueue_lease.held_at IS 'when it was taken last, later than all others of its host: the subqueue that has waited longest is the next';
COMMENT ON COLUMN subqueue_lease.blocked_by IS 'the suspended reference that has to be dealt with before the subqueue goes on';
COMMENT ON COLUMN subqueue_lease.claim IS 'the claim that was made when it was taken last';
COMMENT ON TABLE subqueue_lease IS 'the lease of each ordered service: one host instance at a time, nobody while it is blocked';

CREATE TABLE delivery (
    number        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id    integer     NOT NULL,
    count         integer     NOT NULL,
    delivered_at  timestamptz NOT NULL DEFAULT clock(),
    retried       integer     NOT NULL DEFAULT 0,
    suspended     integer     NOT NULL DEFAULT 0
);
COMMENT ON TABLE delivery IS 'how many references each settled batch delivered, tried in vain and suspended, per service';

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
ALTER TABLE refusal ADD CONSTRAINT labels_are_as_large_as_a_context CHECK (octet_length(labels::text) <= 1048576) NOT VALID;
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
    count       bigint  NOT NULL,
    retried     bigint  NOT NULL DEFAULT 0,
    suspended   bigint  NOT NULL DEFAULT 0
);

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
ALTER TABLE track_settled ADD CONSTRAINT the_texts_of_an_event_are_short
    CHECK (octet_length(reason) <= 65536 AND octet_length(code) <= 1024) NOT VALID;
COMMENT ON TABLE track_settled IS 'what became of references: a row for each settling statement, event, reason, attempt and claim';
COMMENT ON COLUMN track_settled.block IS 'the number of a reference without its last 12 bits, which are in `sequence`: a row has references of one block';

CREATE TABLE publication_minute (
    minute       timestamptz NOT NULL,
    location_id  integer     NOT NULL,
    received     bigint      NOT NULL,
    published    bigint      NOT NULL,
    unrouted     bigint      NOT NULL,
    suspended    bigint      NOT NULL,
    PRIMARY KEY (minute, location_id)
);
COMMENT ON TABLE publication_minute IS 'what each receive location took in, minute by minute; a minute in which nothing came has no row';

CREATE TABLE delivery_minute (
    minute      timestamptz NOT NULL,
    service_id  integer     NOT NULL,
    delivered   bigint      NOT NULL,
    retried     bigint      NOT NULL,
    suspended   bigint      NOT NULL,
    PRIMARY KEY (minute, service_id)
);
COMMENT ON TABLE delivery_minute IS 'what each service was given, minute by minute; a minute in which nothing was tried has no row';

CREATE TABLE sample (
    number   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock(),
    box      json        NOT NULL,
    details  json
);
COMMENT ON TABLE sample IS 'how the MessageBox was, every few seconds of the last hour: what monitoring shows';
COMMENT ON COLUMN sample.details IS 'port by port, only of the newest';

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
    WITH CHECK (correlation_of(hash) = correlation_id
                AND EXISTS (SELECT
                              FROM service
                              JOIN correlation ON coalesce(correlation.service_id, service.id) = service.id
                             WHERE service.id = instance_subscription.service_id
                               AND correlation.id = instance_subscription.correlation_id
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

CREATE VIEW version_definition WITH (security_barrier) AS
SELECT digest, bundle, packages
  FROM orchestration_version
 WHERE EXISTS (SELECT
                 FROM service
                WHERE orchestration_version.digest = ANY (service.versions)
                  AND service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[]));
COMMENT ON VIEW version_definition IS 'the code that a process executes: of the orchestrations of its own hosts';

CREATE VIEW delivery_count WITH (security_barrier) AS
SELECT service.host_id, service.name, sum(done.count)::bigint AS count
  FROM service
  JOIN (SELECT service_id, count FROM delivery
         UNION ALL
        SELECT service_id, count FROM delivery_total) AS done ON done.service_id = service.id
 WHERE service.host_id = ANY ((SELECT own_hosts(current_user))::smallint[])
 GROUP BY service.id;
COMMENT ON VIEW delivery_count IS 'how many references were delivered for each service of its own hosts';

CREATE VIEW track_level WITH (security_barrier) AS
SELECT 'location' AS kind, id, name, application, track
  FROM receive_location
 WHERE host_id = ANY ((SELECT own_hosts(current_user))::smallint[])
 UNION ALL
SELECT 'service', id, name, application, track
  FROM service
 WHERE track <> 'events' AND host_id = ANY ((SELECT own_hosts(current_user))::smallint[]);
COMMENT ON VIEW track_level IS 'the applications of locations of its own hosts, and what is tracked there and for services';

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
    -- At every host: what blocks a subqueue may be at one that the service has left since. What began before the service was
    -- ordered ends first, also where a failure has blocked the subqueue meanwhile.
    SELECT NOT EXISTS (SELECT
                         FROM host
                         JOIN suspended ON suspended.host_id = host.id AND suspended.sequence = blocking)
       AND NOT EXISTS (SELECT
                         FROM claimed
                         JOIN service ON service.id = claimed.service_id
                        WHERE coalesce(service.port_id, service.id) = ordered_service AND claimed.subqueue = 0)
       AND NOT EXISTS (SELECT
                         FROM scheduled
                         JOIN service ON service.id = scheduled.service_id
                        WHERE coalesce(service.port_id, service.id) = ordered_service AND scheduled.subqueue = 0);
END;
REVOKE ALL ON FUNCTION subqueue_may_go_on FROM PUBLIC;
COMMENT ON FUNCTION subqueue_may_go_on IS 'whether what blocks an ordered subqueue is no longer there: a suspended reference, and what began before it was ordered';

CREATE FUNCTION keep_versions() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
BEGIN
    -- What has changed in this epoch is written down as it is now, and what was before ends. A service that was only started,
    -- stopped or labelled anew matches as it did, and has no new version.
    WITH present AS (
        SELECT subscription.id, subscription.service_id, service.name, service.application, subscription.priority,
               coalesce((SELECT json_agg(json_build_array(group_number, position, property, type, operator, value, pass)
                                         ORDER BY group_number, position)
                           FROM predicate
                          WHERE predicate.subscription_id = subscription.id), '[]') AS predicate
          FROM box
          JOIN subscription ON subscription.epoch = box.epoch
          JOIN service ON service.id = subscription.service_id
    ), changed AS (
        SELECT present.*
          FROM present
          LEFT JOIN subscription_version AS known ON known.subscription_id = present.id AND known.until_epoch IS NULL
         WHERE (known.predicate::text, known.priority) IS DISTINCT FROM (present.predicate::text, present.priority)
    ), ended AS (
        UPDATE subscription_version AS known
           SET until_epoch = box.epoch, until_at = clock()
          FROM box
         WHERE known.until_epoch IS NULL
           AND known.subscription_id IN (SELECT id FROM changed
                                          UNION ALL
                                         SELECT subscription_id FROM subscription_removal WHERE epoch = (SELECT epoch FROM box))
    )
    INSERT INTO subscription_version (subscription_id, service_id, service, application, predicate, priority, from_epoch)
    SELECT changed.id, changed.service_id, changed.name, changed.application, changed.predicate, changed.priority, box.epoch
      FROM changed
     CROSS JOIN box;
END $$;
REVOKE ALL ON FUNCTION keep_versions FROM PUBLIC;
COMMENT ON FUNCTION keep_versions IS 'write down what subscriptions are since the present epoch, from our tables: whoever changes them cannot write the past';

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
COMMENT ON FUNCTION create_host_role IS 'the role of a host: it takes from the queues of that host only, by functions made for it; it publishes to everybody, and reads and changes nothing of others';

CREATE FUNCTION check_epoch(publishing integer, matched uuid, read_by uuid) RETURNS void LANGUAGE plpgsql AS $$
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

CREATE FUNCTION publish_exceptions(exceptions json) RETURNS void LANGUAGE plpgsql STRICT AS $$
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
COMMENT ON FUNCTION publish_exceptions IS 'what publishing writes besides messages and references from the index: references of running instances, what is suspended or refused, who waits for a response, counts of locations';

CREATE FUNCTION check_exceptions(exceptions json, message_ids uuid[], publisher name) RETURNS void LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION check_exceptions IS 'whether a publisher may write these: about messages it publishes, and at its own hosts';

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

CREATE FUNCTION publish_few(
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
REVOKE ALL ON FUNCTION publish_few FROM PUBLIC;
COMMENT ON FUNCTION publish_few IS 'a few messages with everything that publishing writes, in one round trip; the only way in for the role of a host';

CREATE FUNCTION ledger_number(id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint;
COMMENT ON FUNCTION ledger_number IS 'the number in the ledger that the id of a message or a part begins with';

CREATE FUNCTION labels_of(context json) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF context::text NOT LIKE '%"labels"%' THEN
        RETURN '{}';
    END IF;
    BEGIN
        -- No text of PostgreSQL holds \u0000, and labels have none: whatever stands for it, they stay as they are.
        RETURN ARRAY(SELECT label
                       FROM (SELECT replace(context::text, '\u0000', '\ufffd')::json -> 'labels' AS labels) AS readable,
                            json_array_elements_text(CASE WHEN json_typeof(readable.labels) = 'array' THEN readable.labels END)
                                AS label);
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        RETURN '{}'; -- whoever is given such a message cannot read it either, and suspends it
    END;
END $$;
COMMENT ON FUNCTION labels_of IS 'the labels in a context as it is stored; none where it cannot be read';

CREATE FUNCTION epoch_moves() RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT coalesce(moved_by = pg_current_xact_id_if_assigned(), false) FROM box;
END;
COMMENT ON FUNCTION epoch_moves IS 'whether this transaction has moved the epoch: what everybody routes by changes only then, or a publisher would not hear of it';

CREATE FUNCTION insert_fragment(part_number uuid, fragment_number integer, fragment_body bytea) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM part WHERE id = part_number)
       OR (EXISTS (SELECT FROM intake WHERE sequence = ledger_number(part_number))
           AND NOT pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER')) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a part that is stored does not grow, nor one of a source in the ledger';
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
                  'resume the message.', host.name, left(string_agg(label, ', ' ORDER BY label), 1000))
      FROM message, host, unnest(labels_of(message.context)) AS label
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
    suspended_at     timestamptz,
    event            text,
    claimed_at       timestamptz
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
COMMENT ON FUNCTION withhold_labelled IS 'a host has lost labels: what waits there and carries them is suspended';

CREATE TABLE audit (
    number         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT clock(),
    database_user  text        NOT NULL DEFAULT session_user,
    person         text        NOT NULL,
    action         text        NOT NULL,
    application    text,
    target         text        NOT NULL,
    before         jsonb,
    after          jsonb,
    reason         text,
    outcome        text        NOT NULL,
    transaction    xid8        DEFAULT pg_current_xact_id()
);
ALTER TABLE audit ADD CONSTRAINT the_texts_of_an_act_are_short
    CHECK (greatest(octet_length(person), octet_length(action), octet_length(application), octet_length(outcome)) <= 4096
           AND greatest(octet_length(target), octet_length(reason)) <= 65536
           AND greatest(octet_length(before::text), octet_length(after::text)) <= 1048576) NOT VALID;
CREATE INDEX ON audit (at);
CREATE INDEX ON audit (target);
COMMENT ON TABLE audit IS 'the acts of people: rows are only ever added';
COMMENT ON COLUMN audit.database_user IS 'as whom the session was opened: nobody chooses it';
COMMENT ON COLUMN audit.person IS 'who the session says it acts for, as the setting crossdock.person has it';
COMMENT ON COLUMN audit.reason IS 'why, as the setting crossdock.reason has it';
COMMENT ON COLUMN audit.transaction IS 'in which it was written: what must be recorded before it happens looks for a committed one';

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE insufficient_privilege USING MESSAGE = 'rows of the audit are neither changed nor deleted';
END $$;
CREATE TRIGGER rows_are_only_added BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

CREATE FUNCTION audit(
    action text, target text, before jsonb, after jsonb, outcome text, application text DEFAULT NULL,
    service_number integer DEFAULT NULL
) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp
BEGIN ATOMIC
    INSERT INTO audit (person, action, application, target, before, after, reason, outcome)
    SELECT left(coalesce(nullif(current_setting('crossdock.person', true), ''), session_user), 1000), left($1, 1000),
           left(coalesce($6, (SELECT service.application FROM service WHERE service.id = $7)), 1000), left($2, 10000),
           CASE WHEN length($3::text) > 100000 THEN to_jsonb(left($3::text, 49000)) ELSE $3 END,
           CASE WHEN length($4::text) > 100000 THEN to_jsonb(left($4::text, 49000)) ELSE $4 END,
           left(nullif(current_setting('crossdock.reason', true), ''), 10000), left($5, 1000)
    RETURNING number;
END;
REVOKE ALL ON FUNCTION audit FROM PUBLIC;
COMMENT ON FUNCTION audit IS 'record an act, in its transaction: the only way to write the audit for whoever does not own the MessageBox';

CREATE FUNCTION access_role(what text, application_name text DEFAULT NULL) RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    -- By a digest: the name of an application may be too long for a role.
    SELECT format('crossdock_%s_%s', to_hex(number), what) || coalesce('_' || left(md5(application_name), 12), '') FROM box;
END;
COMMENT ON FUNCTION access_role IS 'the name of the role of people who may do something, for all applications or for one; there may be none of that name';

CREATE FUNCTION within_limit(what text, application_name text) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT person.rights IS NULL
        OR person.rights ?| ARRAY['administrator', what]
        OR coalesce(person.rights ? (what || ':' || application_name), false)
      FROM (SELECT nullif(current_setting('crossdock.limit', true), '')::jsonb AS rights) AS person;
END;
COMMENT ON FUNCTION within_limit IS 'whether the person for whom the session acts may do something: the setting crossdock.limit lists its rights, as operator or operator:application; without it there is no limit';

CREATE FUNCTION may_do(what text, application_name text) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT within_limit(what, application_name)
       AND (pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER')
            OR coalesce(pg_has_role(session_user, to_regrole(access_role(what))::oid, 'MEMBER'), false)
            OR coalesce(pg_has_role(session_user, to_regrole(access_role(what, application_name))::oid, 'MEMBER'), false));
END;
COMMENT ON FUNCTION may_do IS 'whether whoever opened the session may do something to what belongs to an application: as owner, or as member of a role, and within the limit of the person it acts for';

CREATE FUNCTION may_read(message_number uuid) RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT may_do('bodies', NULL)
        OR EXISTS (SELECT
                     FROM suspended
                     JOIN service ON service.id = suspended.service_id
                    WHERE suspended.message_id = message_number AND may_do('bodies', service.application));
END;
COMMENT ON FUNCTION may_read IS 'whether whoever opened the session may read the body of a message: of any, or of one that is suspended for an application';

CREATE TABLE original (
    message_id  uuid        NOT NULL,
    edited_id   uuid        NOT NULL,
    host_id     smallint    NOT NULL,
    sequence    bigint      NOT NULL,
    service_id  integer     NOT NULL,
    edited_at   timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (edited_id)
);
CREATE INDEX ON original (message_id);
CREATE INDEX ON original (edited_at);
COMMENT ON TABLE original IS 'messages of which somebody edited a delivery: each row is a reference, so that they are kept for a while';

-- What an operator may change is of the applications it is for. The owner is not concerned, and everybody sees everything
-- that is granted. Subscriptions, their predicates and the epoch are what every publisher routes by: they are changed by
-- functions only.
ALTER TABLE service ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON service FOR SELECT USING (true);
ALTER TABLE send_port_group ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON send_port_group FOR SELECT USING (true);
ALTER TABLE receive_location ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON receive_location FOR SELECT USING (true);
ALTER TABLE subscription ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON subscription FOR SELECT USING (true);
ALTER TABLE predicate ENABLE ROW LEVEL SECURITY;
CREATE POLICY everybody_is_seen ON predicate FOR SELECT USING (true);
ALTER TABLE history ENABLE ROW LEVEL SECURITY;
CREATE POLICY readers_see_their_own ON history FOR SELECT
    USING (may_do('bodies', (SELECT service.application
                               FROM instance
                               JOIN service ON service.id = instance.service_id
                              WHERE instance.host_id = history.host_id AND instance.id = history.instance_id)));
CREATE POLICY viewers_see_everybody ON instance_subscription FOR SELECT
    USING ((SELECT pg_has_role(current_user, to_regrole(access_role('viewer'))::oid, 'MEMBER')));

CREATE FUNCTION sees_personal() RETURNS boolean LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT may_do('bodies', NULL);
END;
COMMENT ON FUNCTION sees_personal IS 'whether whoever opened the session may read personal values: as owner, or with the right bodies for all applications';

CREATE FUNCTION hidden_members() RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    -- As _MEMBER in track_segment.py: a member of a context whose value is a text, or a text with its type.
    SELECT format('([{,]"(?:%s)":)(?:"(?:[^"\\]|\\.)*"|\{[^{}]*\})', string_agg(replace(name, '.', '\.'), '|'))
      FROM (SELECT name FROM property WHERE personal UNION ALL SELECT 'BTS.EpmRRCorrelationToken') AS hidden;
END;
COMMENT ON FUNCTION hidden_members IS 'a pattern for what nobody is shown of a context: personal values, and the tokens by which requests are answered';

CREATE VIEW shown_message AS
    SELECT id, created_at, parts,
           CASE WHEN (SELECT sees_personal()) THEN context::text
                ELSE regexp_replace(context::text, (SELECT hidden_members()), '\1"***"', 'g') END AS context
      FROM message;
COMMENT ON VIEW shown_message IS 'messages as people may see them: personal values and tokens are masked, unless the right bodies is there';

CREATE FUNCTION shown_exceptions(exceptions json) RETURNS json LANGUAGE sql STABLE
BEGIN ATOMIC
    -- What the track keeps of them. The values and hashes by which instances wait, and tokens of requests, are not among it.
    SELECT json_object_agg(kind.name, noted.rows)
      FROM unnest(ARRAY['queued', 'activated', 'stopped', 'suspended', 'refused']) AS kind (name)
     CROSS JOIN LATERAL (SELECT json_agg(json_strip_nulls(to_json(row))) AS rows
                           FROM json_to_recordset(CASE WHEN json_typeof(exceptions -> kind.name) = 'array'
                                                       THEN exceptions -> kind.name END)
                                AS row (message_id json, subscription_id json, instance_id json, code json, reason json,
                                        labels json)) AS noted
     WHERE noted.rows IS NOT NULL;
END;
COMMENT ON FUNCTION shown_exceptions IS 'what was written besides messages and references, as people may see it';

CREATE VIEW shown_few AS
    SELECT at, transaction, publisher, epoch, message_ids,
           CASE WHEN (SELECT sees_personal()) THEN ARRAY(SELECT unnest(contexts)::text)
                ELSE ARRAY(SELECT regexp_replace(context::text, (SELECT hidden_members()), '\1"***"', 'g')
                             FROM unnest(contexts) AS context) END AS contexts,
           references_to, subscriptions,
           CASE WHEN (SELECT sees_personal()) THEN exceptions ELSE shown_exceptions(exceptions) END AS exceptions, origins,
           first_reference, last_reference
      FROM track_few;
COMMENT ON VIEW shown_few IS 'the same of what is not packed yet';

CREATE VIEW shown_filter AS
    SELECT at, segment, CASE WHEN (SELECT sees_personal()) THEN filter END AS filter FROM track_personal;
COMMENT ON VIEW shown_filter IS 'the filters of personal values as people may see them: one tells whether a value that somebody guesses was there';

CREATE VIEW shown_waiting AS
    SELECT waiting.id, waiting.instance_id, waiting.host_id, waiting.correlation_id,
           ARRAY(SELECT CASE WHEN pair.property = 'BTS.EpmRRCorrelationToken'
                               OR EXISTS (SELECT FROM property WHERE property.name = pair.property AND property.personal)
                             THEN '***' ELSE left(pair.value, 1000) END
                   FROM unnest(correlation.property, waiting.value) WITH ORDINALITY AS pair (property, value, place)
                  WHERE pair.property IS NOT NULL AND pair.value IS NOT NULL
                  ORDER BY pair.place) AS value
      FROM instance_subscription AS waiting
      JOIN correlation ON correlation.id = waiting.correlation_id;
COMMENT ON VIEW shown_waiting IS 'by which values running instances wait, as everybody may see them: personal values and tokens are masked, and long ones cut';

CREATE VIEW sample_time WITH (security_barrier) AS SELECT at FROM sample ORDER BY number DESC LIMIT 1;
COMMENT ON VIEW sample_time IS 'when somebody looked last: the role of a host may know that, and no more';
GRANT SELECT ON sample_time TO PUBLIC;

CREATE FUNCTION create_access_role(what text, application_name text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    role_name text := access_role(what, application_name);
    place text;
    allowed text;
    granted text[] := CASE what
        WHEN 'viewer' THEN ARRAY[
            'USAGE ON SCHEMA crossdock',
            -- No definitions, which may hold secrets, no code, and no bodies.
            'SELECT ON migration, box, epoch_history, host, service_class, host_instance, application, property, send_port_group,
                       subscription, subscription_removal, predicate, correlation, publication,
                       publication_total, queue, claimed, scheduled, suspended, instance, held, timer, subqueue_lease,
                       delivery, delivery_total, reference_log, routing_failure, refusal, audit, original, subscription_version,
                       track_published, track_settled, erased_message, publication_minute, delivery_minute, sample,
                       service_definition, shown_message, shown_few, shown_waiting, shown_filter',
            -- Personal values, and tokens by which requests are answered, are seen by views only, which mask them.
            'SELECT (id, part_count, created_at, parts, reference_count) ON message',
            -- Whoever knows the random bits of a source knows the ids that its messages will have.
            'SELECT (sequence, location_id, identity, size, listed_at, attempts, due_at, claimed_by, failures, reason) ON intake',
            'SELECT (id, instance_id, service_id, host_id, correlation_id, priority, bound_to, created_at) ON instance_subscription',
            'SELECT (id, name, application, host_id, class, transport_id, priority, ordered, two_way, predicate, state, deployed,
                     group_name, port_id, receives, version, subqueue) ON service',
            'SELECT (id, name, application, host_id, enabled, deployed) ON receive_location',
            'SELECT (digest, application, packages, created_at) ON orchestration_version',
            'SELECT (id, name, size, fragments, reference_count) ON part',
            'SELECT (at, transaction, publisher, epoch, message_ids, references_to, subscriptions, origins, first_reference,
                     last_reference) ON track_few',
            'SELECT (at, segment) ON track_personal',
            -- Policies say which rows.
            'SELECT ON history',
            'SELECT, INSERT, UPDATE, DELETE ON saved_view',
            'EXECUTE ON FUNCTION audit, find_token, find_view']
        WHEN 'operator' THEN ARRAY[
            'EXECUTE ON FUNCTION resume_deliveries, terminate_deliveries, resume_stopped, resume_instances, cancel_instances',
            -- What is resumed begins or joins instances of orchestrations.
            'EXECUTE ON FUNCTION list_withheld, list_stopped, list_resumable, list_contexts, begin_suspended, find_instances,
                                 open_convoys, close_convoys',
            'SELECT ON SEQUENCE reference_sequence',
            -- To start and stop: these leave alone what is of other applications.
            'EXECUTE ON FUNCTION move_epoch, set_service_state, set_group_state, set_location_enabled, set_application_enabled,
                                 enlist, insert_predicates, unenlist,
                                 keep_versions']
        WHEN 'bodies' THEN ARRAY[
            'EXECUTE ON FUNCTION record_reads, read_messages, read_piece']
            -- Contexts and the track may hold personal values, the track bodies too, of all applications together.
            || CASE WHEN application_name IS NULL
                    THEN ARRAY['SELECT (context) ON message', 'SELECT ON track_personal, track_body, track_few'] END
        WHEN 'edit' THEN ARRAY[
            'EXECUTE ON FUNCTION edit_delivery, insert_fragment, list_withheld',
            'USAGE ON SEQUENCE ' || pg_get_serial_sequence('intake', 'sequence')]
        END;
BEGIN
    IF granted IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('there is no right %s', what);
    END IF;
    IF to_regrole(role_name) IS NULL THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXECUTE format('COMMENT ON ROLE %I IS %L', role_name,
                       concat('people who have the right ', what, ' in one MessageBox', ', for application ' || application_name));
    END IF;
    -- What an older version granted is taken back; nobody sees the moment between, since all of it is one transaction.
    FOR place IN SELECT format('%I.%I', nspname, relname)
                   FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                  WHERE nspname = 'crossdock' AND relkind IN ('r', 'p', 'v', 'S') AND NOT relispartition LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %I', place, role_name);
    END LOOP;
    FOREACH allowed IN ARRAY granted LOOP
        EXECUTE format('GRANT %s TO %I', allowed, role_name);
    END LOOP;
    IF what <> 'viewer' THEN
        EXECUTE format('GRANT %I TO %I', create_access_role('viewer'), role_name);
    END IF;
    IF what = 'edit' THEN
        EXECUTE format('GRANT %I TO %I', create_access_role('bodies', application_name), role_name);
    END IF;
    RETURN role_name;
END $$;
COMMENT ON FUNCTION create_access_role IS 'the role of people who may do something, for all applications or for one; one that is there is brought up to date';

CREATE FUNCTION renew_access_roles() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM create_access_role(access.what, place.application_name)
       FROM unnest(ARRAY['viewer', 'operator', 'bodies', 'edit']) AS access (what),
            (SELECT NULL AS application_name UNION ALL SELECT name FROM application) AS place
      WHERE to_regrole(access_role(access.what, place.application_name)) IS NOT NULL;
END $$;
COMMENT ON FUNCTION renew_access_roles IS 'functions that were made anew are granted again';
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

CREATE TABLE api_token (
    name         text        PRIMARY KEY,
    digest       bytea       NOT NULL UNIQUE,
    rights       text[]      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock(),
    created_by   text        NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz
);
COMMENT ON TABLE api_token IS 'by which programs and people sign in at the console; the token itself is nowhere, only its SHA-256';
COMMENT ON COLUMN api_token.rights IS 'what its bearer may do at most, as operator or operator:application';

CREATE TABLE api_answer (
    person   text        NOT NULL,
    key      text        NOT NULL,
    request  bytea       NOT NULL,
    status   smallint,
    content  bytea,
    headers  jsonb,
    at       timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (person, key)
);
CREATE INDEX ON api_answer (at);
COMMENT ON TABLE api_answer IS 'what the console answered to requests with an Idempotency-Key, for a day; without a status while the request is in progress';

CREATE TABLE saved_view (
    id            uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    database_user text        NOT NULL DEFAULT session_user,
    person        text        NOT NULL,
    name          text        NOT NULL,
    query         text        NOT NULL,
    saved_at      timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT names_of_one_person_differ UNIQUE (database_user, person, name)
);
COMMENT ON TABLE saved_view IS 'searches for messages that people keep under a name; who knows the id of one may open it';

ALTER TABLE saved_view ENABLE ROW LEVEL SECURITY;
CREATE POLICY people_keep_their_own ON saved_view USING (database_user = session_user) WITH CHECK (database_user = session_user);
