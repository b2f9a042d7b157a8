-- A large source is published range by range: where each ends, and whether it is the last.
ALTER TABLE publication ADD COLUMN range_end bigint;
ALTER TABLE publication ADD COLUMN last boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN publication.range_end IS 'where the next range of a large source begins; null for a source that is read whole';
COMMENT ON COLUMN publication.last IS 'with this range all of the source is published';
