-- One clock for all processes, however wrong the clocks of their machines are. PostgreSQL puts the body of the function
-- in its place when it plans a statement, so it costs nothing, and an index on a time is used as it is for now().
CREATE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT now()';
COMMENT ON FUNCTION clock IS 'the time, for all processes: no other clock is asked. PostgreSQL puts its body in its place; a test may replace it';

ALTER TABLE box ALTER COLUMN created_at SET DEFAULT clock();
ALTER TABLE host_instance ALTER COLUMN started_at SET DEFAULT clock(), ALTER COLUMN seen_at SET DEFAULT clock();
ALTER TABLE application ALTER COLUMN deployed_at SET DEFAULT clock();
ALTER TABLE instance_subscription ALTER COLUMN created_at SET DEFAULT clock();
ALTER TABLE intake ALTER COLUMN listed_at SET DEFAULT clock();
ALTER TABLE publication ALTER COLUMN published_at SET DEFAULT clock();
ALTER TABLE message ALTER COLUMN created_at SET DEFAULT clock();
ALTER TABLE suspended ALTER COLUMN suspended_at SET DEFAULT clock();
ALTER TABLE delivery ALTER COLUMN delivered_at SET DEFAULT clock();
ALTER TABLE routing_failure ALTER COLUMN created_at SET DEFAULT clock();
ALTER TABLE refusal ALTER COLUMN refused_at SET DEFAULT clock();

COMMENT ON COLUMN ordered_line.held_at IS 'when it was taken last, later than all others of its host: the line that has waited longest is the next';
