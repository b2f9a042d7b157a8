-- The whole schema as it stands. Migrations build it step by step; a test proves that both give the same.

CREATE TABLE box (
    number          bigint      NOT NULL,
    case_sensitive  boolean     NOT NULL,
    epoch           bigint      NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT now(),
    epoch_token     uuid        NOT NULL DEFAULT gen_random_uuid()
);
CREATE UNIQUE INDEX there_is_one_box ON box ((true));
COMMENT ON COLUMN box.number IS '38 random bits that make message ids differ between MessageBoxes';
COMMENT ON COLUMN box.epoch IS 'moves with every change of subscriptions or configuration';

CREATE TABLE host (
    id    smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text     NOT NULL UNIQUE
);

CREATE TABLE host_instance (
    id          integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id     smallint    NOT NULL REFERENCES host,
    machine     text        NOT NULL,
    process     integer     NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE host_instance IS 'an instance lives while its session holds the advisory lock of its id';

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
    enabled      boolean NOT NULL DEFAULT true
);

CREATE TABLE service (
    id           integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text     NOT NULL UNIQUE,
    application  text     NOT NULL REFERENCES application,
    host_id      smallint NOT NULL REFERENCES host,
    definition   json     NOT NULL
);
COMMENT ON TABLE service IS 'who can be given messages: a send port';

CREATE TABLE subscription (
    id          integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id  integer  NOT NULL REFERENCES service,
    host_id     smallint NOT NULL REFERENCES host,
    state       text     NOT NULL DEFAULT 'started',
    priority    smallint NOT NULL DEFAULT 5,
    epoch       bigint   NOT NULL DEFAULT 0,
    CONSTRAINT subscriptions_are_started_or_stopped CHECK (state IN ('started', 'stopped'))
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

CREATE TABLE intake (
    sequence     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    location_id  integer     NOT NULL REFERENCES receive_location,
    identity     bytea       NOT NULL,
    size         bigint      NOT NULL,
    listed_at    timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX a_source_is_listed_once ON intake (sha256(identity));

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
    PRIMARY KEY (intake_sequence, range_start),
    CONSTRAINT everything_received_is_accounted_for CHECK (received = published + unrouted + suspended)
);
CREATE INDEX ON publication (number);
COMMENT ON TABLE publication IS 'the key that makes publishing a range of a source happen once, and what came of it';

CREATE TABLE message (
    id          uuid        PRIMARY KEY,
    context     json        NOT NULL,
    part_count  smallint    NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE part (
    message_id  uuid     NOT NULL,
    number      smallint NOT NULL,
    name        text     NOT NULL,
    body        bytea    NOT NULL,
    PRIMARY KEY (message_id, number)
);
COMMENT ON COLUMN part.number IS 'part 0 is the body';

CREATE SEQUENCE reference_sequence;

CREATE TABLE queue (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL DEFAULT nextval('reference_sequence'),
    priority         smallint    NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  integer     NOT NULL,
    service_id       integer     NOT NULL,
    attempt          smallint    NOT NULL DEFAULT 0,
    PRIMARY KEY (host_id, priority, sequence)
) PARTITION BY LIST (host_id);

CREATE TABLE claimed (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL,
    priority         smallint    NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  integer     NOT NULL,
    service_id       integer     NOT NULL,
    attempt          smallint    NOT NULL,
    claimed_by       integer     NOT NULL,
    claimed_at       timestamptz NOT NULL,
    PRIMARY KEY (host_id, sequence)
) PARTITION BY LIST (host_id);

CREATE TABLE scheduled (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL,
    priority         smallint    NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  integer     NOT NULL,
    service_id       integer     NOT NULL,
    attempt          smallint    NOT NULL,
    due_at           timestamptz NOT NULL,
    reason           text        NOT NULL,
    PRIMARY KEY (host_id, sequence)
) PARTITION BY LIST (host_id);
CREATE INDEX ON scheduled (host_id, due_at);

CREATE TABLE suspended (
    host_id          smallint    NOT NULL,
    sequence         bigint      NOT NULL DEFAULT nextval('reference_sequence'),
    kind             text        NOT NULL,
    message_id       uuid        NOT NULL,
    subscription_id  integer,
    service_id       integer,
    priority         smallint    NOT NULL DEFAULT 5,
    attempt          smallint    NOT NULL DEFAULT 0,
    reason           text        NOT NULL,
    suspended_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host_id, sequence),
    CONSTRAINT suspensions_are_of_a_known_kind CHECK (kind IN ('receive', 'unrouted', 'send', 'stopped')),
    CONSTRAINT a_suspended_delivery_names_its_service CHECK ((kind IN ('send', 'stopped')) = (service_id IS NOT NULL))
) PARTITION BY LIST (host_id);
CREATE INDEX ON suspended (message_id);

CREATE TABLE delivery (
    number        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    service_id    integer     NOT NULL,
    count         integer     NOT NULL,
    delivered_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE delivery IS 'how many references each settled batch delivered, per service';

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
        EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES IN (%s)',
                       parent || '_' || host_number, parent, host_number);
    END LOOP;
    RETURN host_number;
END $$;
