-- Take away a suspended reference, since something is published in its place.
WITH replaced AS (
    DELETE FROM suspended
     WHERE host_id = %(host)s AND sequence = %(sequence)s
    RETURNING message_id
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM replaced WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM replaced WHERE (SELECT message FROM reference_log) = 2
)
SELECT message_id FROM replaced;
