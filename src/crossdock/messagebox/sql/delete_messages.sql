-- Delete the unreferenced messages, what was noted about them, and their references to parts. By an array, which goes by the
-- index however many messages PostgreSQL believes there are.
WITH gone AS (
    DELETE FROM message
     WHERE id = ANY (ARRAY(SELECT id FROM unreferenced))
    RETURNING parts
), reports AS (
    DELETE FROM routing_failure
     WHERE message_id = ANY (ARRAY(SELECT id FROM unreferenced))
), refusals AS (
    DELETE FROM refusal
     WHERE message_id = ANY (ARRAY(SELECT id FROM unreferenced))
), log_1 AS (
    INSERT INTO part_ref_log_1 (part_id, delta)
    SELECT unnest(parts), -1 FROM gone WHERE (SELECT part FROM reference_log) = 1
), log_2 AS (
    INSERT INTO part_ref_log_2 (part_id, delta)
    SELECT unnest(parts), -1 FROM gone WHERE (SELECT part FROM reference_log) = 2
)
SELECT count(*) FROM gone;
