-- Bring back the deliveries whose next attempt is due, to the host that has the service now.
WITH due AS (
    DELETE FROM {scheduled}
     WHERE ctid = ANY (ARRAY(SELECT ctid
                               FROM {scheduled}
                              WHERE host_id = %(host)s AND due_at <= %(now)s
                              ORDER BY due_at
                              LIMIT 1000
                                FOR UPDATE SKIP LOCKED))
    RETURNING *
), returned AS (
    INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id)
    SELECT CASE WHEN due.line < 0 THEN due.host_id ELSE service.host_id END, due.sequence, due.priority, due.message_id,
           due.subscription_id, due.service_id, due.attempt, due.line, due.instance_id
      FROM due
      JOIN service ON service.id = due.service_id
)
SELECT count(*), min(sequence) FROM due;
