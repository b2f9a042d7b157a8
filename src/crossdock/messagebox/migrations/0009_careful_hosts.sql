-- Ordered lines are taken in turn.
ALTER TABLE ordered_line ADD COLUMN held_at timestamptz NOT NULL DEFAULT '-infinity';
CREATE INDEX ON ordered_line (host_id, held_at, service_id);
COMMENT ON COLUMN ordered_line.held_at IS 'when it was taken last: the line that has waited longest is the next';

-- What ends the process that delivers it is recognised: deaths are counted apart from attempts.
ALTER TABLE queue ADD COLUMN deaths smallint NOT NULL DEFAULT 0;
ALTER TABLE claimed ADD COLUMN deaths smallint NOT NULL DEFAULT 0;
COMMENT ON COLUMN queue.deaths IS 'how many processes have ended that had it in hand: the first in any way, the others while they delivered it';
ALTER TABLE host_instance ADD COLUMN delivering bigint[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN host_instance.delivering IS 'of the references that a dead instance had in hand those that it is delivering now';
COMMENT ON COLUMN host_instance.state IS 'running, throttled (with the reason), stopping, or lost: its process has gone on as another instance';

-- What running instances wait for is claimed before everything that begins a new one.
ALTER TABLE instance_subscription ALTER COLUMN priority SET DEFAULT 0;
COMMENT ON COLUMN instance_subscription.priority IS 'before every activation, whose priorities are from 1 to 10';
UPDATE instance_subscription SET priority = 0;
UPDATE queue SET priority = 0 WHERE instance_id IS NOT NULL;
UPDATE claimed SET priority = 0 WHERE instance_id IS NOT NULL;
UPDATE scheduled SET priority = 0 WHERE instance_id IS NOT NULL;
UPDATE suspended SET priority = 0 WHERE instance_id IS NOT NULL;
