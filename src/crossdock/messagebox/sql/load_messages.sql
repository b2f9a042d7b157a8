-- Messages with their parts, the body first. A large body is fetched when it is read.
SELECT message.id, message.context::text, part.id, part.name,
       CASE WHEN part.size <= %(limit)s THEN part.body END, part.fragments
  FROM message
  LEFT JOIN LATERAL unnest(message.parts) WITH ORDINALITY AS place (part_id, number) ON true
  LEFT JOIN part ON part.id = place.part_id
 WHERE message.id = ANY(%(message)s)
 ORDER BY message.id, place.number;
