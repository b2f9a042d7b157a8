-- Messages with their parts, the body first. A large body is fetched when it is read. Each part is looked up by itself: a
-- plan that was made when there were none would else read them all.
SELECT message.id, message.context::text, part.id, part.name,
       part.body, part.fragments
  FROM message
  LEFT JOIN LATERAL unnest(message.parts) WITH ORDINALITY AS place (part_id, number) ON true
  LEFT JOIN LATERAL (SELECT id, name, CASE WHEN size <= %(limit)s THEN body END AS body, fragments
                       FROM part
                      WHERE id = place.part_id
                      LIMIT 1) AS part ON true
 WHERE message.id = ANY(%(message)s)
 ORDER BY message.id, place.number;
