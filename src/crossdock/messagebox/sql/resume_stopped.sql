-- Starting a service resumes what was suspended only because it was stopped.
WITH resumed AS (
    DELETE FROM suspended
     WHERE service_id = %(service)s AND kind = 'stopped'
    RETURNING *
), returned AS (
    INSERT INTO queue (host_id, line, sequence, priority, message_id, subscription_id, service_id, instance_id)
    SELECT service.host_id, CASE WHEN service.ordered THEN coalesce(service.port_id, service.id) ELSE 0 END, resumed.sequence, resumed.priority,
           resumed.message_id, resumed.subscription_id, resumed.service_id, resumed.instance_id
      FROM resumed
      JOIN service ON service.id = resumed.service_id
)
SELECT count(*) FROM resumed;
