-- Which subscriptions changed in which epoch, so that a process that knows one epoch reads only what came after it.

-- A name for each epoch that is not used twice, also not after a backup was restored.
ALTER TABLE box ADD COLUMN epoch_token uuid NOT NULL DEFAULT gen_random_uuid();

ALTER TABLE subscription ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
CREATE INDEX ON subscription (epoch);

CREATE TABLE subscription_removal (
    subscription_id  integer PRIMARY KEY,
    epoch            bigint  NOT NULL
);
CREATE INDEX ON subscription_removal (epoch);
