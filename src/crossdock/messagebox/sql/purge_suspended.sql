-- End references that have been suspended for longer than somebody said they should be kept.
WITH ended AS (
    DELETE FROM suspended
     WHERE (host_id, sequence) IN (SELECT host_id, sequence
                                     FROM suspended
                                    WHERE suspended_at < %(before)s
                                    LIMIT %(limit)s
                                      FOR UPDATE SKIP LOCKED)
    RETURNING message_id
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 2
)
SELECT count(*) FROM ended;
