-- Suspended messages, the oldest first. The context is read by Python: it may hold text that SQL cannot, such as \u0000.
SELECT suspended.message_id AS id, suspended.kind, suspended.reason, suspended.suspended_at, suspended.attempt,
       service.name AS port, message.context::text AS context,
       (SELECT sum(octet_length(body)) FROM part WHERE part.message_id = suspended.message_id) AS bytes
  FROM suspended
  JOIN message ON message.id = suspended.message_id
  LEFT JOIN service ON service.id = suspended.service_id
 ORDER BY suspended.sequence
 LIMIT %(limit)s;
