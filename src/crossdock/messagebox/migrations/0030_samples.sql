-- What went through is kept by the minute, and somebody looks at the whole MessageBox every few seconds.

ALTER TABLE delivery ADD COLUMN retried integer NOT NULL DEFAULT 0, ADD COLUMN suspended integer NOT NULL DEFAULT 0;
COMMENT ON TABLE delivery IS 'how many references each settled batch delivered, tried in vain and suspended, per service';

ALTER TABLE delivery_total ADD COLUMN retried bigint NOT NULL DEFAULT 0, ADD COLUMN suspended bigint NOT NULL DEFAULT 0;

ALTER TABLE publication ADD COLUMN counted boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN publication.counted IS 'it is in the totals: its source is still known, and may be for long';
CREATE INDEX publication_to_be_counted ON publication (location_id) WHERE NOT counted;

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

CREATE VIEW sample_time WITH (security_barrier) AS SELECT at FROM sample ORDER BY number DESC LIMIT 1;
COMMENT ON VIEW sample_time IS 'when somebody looked last: the role of a host may know that, and no more';
GRANT SELECT ON sample_time TO PUBLIC;
