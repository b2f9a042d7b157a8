-- Messages with their parts, the body first.
SELECT message.id, message.context::text, part.name, part.body
  FROM message
  JOIN part ON part.message_id = message.id
 WHERE message.id = ANY(%(message)s)
 ORDER BY message.id, part.number;
