-- The state of a source is in the ledger: when it is to be read, who reads it now, and why it could not be read.
ALTER TABLE intake
    ADD COLUMN due_at      timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN claimed_by  integer     NOT NULL DEFAULT 0,
    ADD COLUMN failures    integer     NOT NULL DEFAULT 0,
    ADD COLUMN reason      text,
    ADD CONSTRAINT failed_sources_have_a_reason CHECK ((failures > 0) = (reason IS NOT NULL));
COMMENT ON COLUMN intake.due_at IS 'not read before this time; a source that never failed is due at once';
COMMENT ON COLUMN intake.claimed_by IS 'the number whose advisory lock the pipeline holds that reads it or has read it; 0 for nobody';
COMMENT ON COLUMN intake.failures IS 'how often it could not be read';
COMMENT ON COLUMN intake.reason IS 'why it could not be read, the last time';
-- Claiming changes no column of an index. With room in its page, the new version of a row needs no entries in the indexes.
ALTER TABLE intake SET (fillfactor = 45);
-- What is published is not to be read again: 1 stands for a pipeline that is gone.
UPDATE intake
   SET claimed_by = 1
 WHERE EXISTS (SELECT FROM publication WHERE intake_sequence = intake.sequence AND last);
