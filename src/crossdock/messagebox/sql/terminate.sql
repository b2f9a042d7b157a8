-- End suspended references for good; the message goes with its last one.
WITH ended AS (
    DELETE FROM suspended
     WHERE message_id = ANY(%(message)s)
    RETURNING message_id
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 2
)
SELECT message_id, count(*)
  FROM ended
 GROUP BY message_id;
