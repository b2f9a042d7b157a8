-- Ordered lines are taken in turn.
ALTER TABLE ordered_line ADD COLUMN held_at timestamptz NOT NULL DEFAULT '-infinity';
CREATE INDEX ON ordered_line (host_id, held_at, service_id);
COMMENT ON COLUMN ordered_line.held_at IS 'when it was taken last: the line that has waited longest is the next';
