-- Messages that nobody wanted and whose nearest misses are still to be worked out.
SELECT suspended.message_id, message.context::text
  FROM suspended
  JOIN message ON message.id = suspended.message_id
 WHERE suspended.kind = 'unrouted' AND NOT suspended.reported
 ORDER BY suspended.sequence
 LIMIT %(limit)s;
