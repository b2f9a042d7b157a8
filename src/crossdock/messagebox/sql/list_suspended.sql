-- Suspended messages, the oldest first. The context is read by Python: it may hold text that SQL cannot, such as \u0000.
SELECT suspended.message_id AS id, suspended.kind, suspended.reason, suspended.suspended_at, suspended.attempt,
       suspended.host_id, suspended.sequence, service.name AS port, message.context::text AS context,
       (SELECT sum(part.size) FROM part WHERE part.id = ANY(message.parts)) AS bytes,
       routing_failure.report::text AS report
  FROM suspended
  JOIN message ON message.id = suspended.message_id
  LEFT JOIN service ON service.id = suspended.service_id
  LEFT JOIN routing_failure ON routing_failure.message_id = suspended.message_id AND suspended.kind = 'unrouted'
 WHERE %(message)s::uuid[] IS NULL OR suspended.message_id = ANY(%(message)s::uuid[])
 ORDER BY suspended.sequence
 LIMIT %(limit)s;
