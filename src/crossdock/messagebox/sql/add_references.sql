-- More references to messages, in the log that is active: one statement, so that a swap meanwhile is either seen or not.
WITH entry AS (
    SELECT * FROM unnest(%(message)s::uuid[], %(delta)s::integer[]) AS entry (message_id, delta) WHERE delta <> 0
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, delta FROM entry WHERE (SELECT message FROM reference_log) = 1
)
INSERT INTO message_ref_log_2 (message_id, delta)
SELECT message_id, delta FROM entry WHERE (SELECT message FROM reference_log) = 2;
