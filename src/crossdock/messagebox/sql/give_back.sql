-- Put claimed references back as they were, all but the one that was tried: that one counts its attempt. They go to the
-- host that has the service now, except what only one host instance may take.
WITH returned AS (
    DELETE FROM {claimed}
     WHERE host_id = %(host)s AND claimed_by = %(instance)s AND sequence = ANY(%(sequence)s::bigint[])
    RETURNING *
)
INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id)
SELECT CASE WHEN returned.line < 0 THEN returned.host_id ELSE service.host_id END, returned.sequence, returned.priority,
       returned.message_id, returned.subscription_id, returned.service_id,
       CASE WHEN returned.sequence = %(tried)s THEN returned.attempt + 1 ELSE returned.attempt END, returned.line,
       returned.instance_id
  FROM returned
  JOIN service ON service.id = returned.service_id;
