-- Delete the unreferenced messages, what was noted about them, and their references to parts.
WITH gone AS (
    DELETE FROM message
     USING unreferenced
     WHERE message.id = unreferenced.id
    RETURNING message.id, message.parts
), reports AS (
    DELETE FROM routing_failure
     USING unreferenced
     WHERE routing_failure.message_id = unreferenced.id
), refusals AS (
    DELETE FROM refusal
     USING unreferenced
     WHERE refusal.message_id = unreferenced.id
), log_1 AS (
    INSERT INTO part_ref_log_1 (part_id, delta)
    SELECT unnest(parts), -1 FROM gone WHERE (SELECT part FROM reference_log) = 1
), log_2 AS (
    INSERT INTO part_ref_log_2 (part_id, delta)
    SELECT unnest(parts), -1 FROM gone WHERE (SELECT part FROM reference_log) = 2
)
SELECT count(*) FROM gone;
