-- Bring back the deliveries whose next attempt is due.
WITH due AS (
    DELETE FROM scheduled
     WHERE host_id = %(host)s
       AND sequence IN (SELECT sequence
                          FROM scheduled
                         WHERE host_id = %(host)s AND due_at <= %(now)s
                         ORDER BY due_at
                         LIMIT 1000
                           FOR UPDATE SKIP LOCKED)
    RETURNING *
)
INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt)
SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt
  FROM due;
