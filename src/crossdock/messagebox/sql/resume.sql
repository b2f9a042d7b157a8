-- Deliver suspended references again, from the first attempt on, also where the service is stopped. They go where the
-- service is now, except what only one host instance may take.
WITH resumed AS (
    DELETE FROM suspended
     WHERE message_id = ANY(%(message)s) AND kind IN ('send', 'stopped')
    RETURNING *
), placed AS (
    SELECT resumed.sequence, resumed.priority, resumed.message_id, resumed.subscription_id, resumed.service_id,
           resumed.instance_id,
           CASE WHEN resumed.line < 0 THEN resumed.host_id ELSE service.host_id END AS host_id,
           CASE WHEN resumed.line < 0 THEN resumed.line WHEN service.ordered THEN coalesce(service.port_id, service.id) ELSE 0 END AS line
      FROM resumed
      JOIN service ON service.id = resumed.service_id
), returned AS (
    INSERT INTO queue (host_id, line, sequence, priority, message_id, subscription_id, service_id, instance_id)
    SELECT host_id, line, sequence, priority, message_id, subscription_id, service_id, instance_id
      FROM placed
)
SELECT message_id, service_id, host_id FROM placed;
