-- Claim ready references for one host instance: move them, so that no row is updated in place and no transaction stays
-- open while they are delivered. SKIP LOCKED lets instances share the queue.
WITH ready AS (
    DELETE FROM queue
     WHERE host_id = %(host)s
       AND (priority, sequence) IN (SELECT priority, sequence
                                      FROM queue
                                     WHERE host_id = %(host)s
                                     ORDER BY priority, sequence
                                     LIMIT %(limit)s
                                       FOR UPDATE SKIP LOCKED)
    RETURNING *
)
INSERT INTO claimed (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, claimed_by, claimed_at)
SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, %(instance)s, %(now)s
  FROM ready
RETURNING priority, sequence, message_id, service_id, attempt;
