-- Which subscriptions changed in which epoch, so that a process that knows one epoch reads only what came after it.

ALTER TABLE subscription ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
CREATE INDEX ON subscription (epoch);

CREATE TABLE subscription_removal (
    subscription_id  integer PRIMARY KEY,
    epoch            bigint  NOT NULL
);
CREATE INDEX ON subscription_removal (epoch);
