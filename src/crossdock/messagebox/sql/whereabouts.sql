-- Where messages and their copies are now, for people who ask about one message.


-- name: locate
-- The copies of messages. Nobody finds a reference by its message, except by reading all of a queue; by the numbers that the
-- references of its transaction have, and the places where its services wait, the index of a queue is enough. Whoever does not
-- know them gives all numbers, and waits for it. What is queued at an ordered port that is blocked waits: it says by what.
SELECT copy.message_id, CASE WHEN line.why IS NULL THEN copy.place ELSE 'waiting' END AS place, host.name AS host,
       copy.sequence, copy.subscription_id, service.id AS service_id, service.name AS service, copy.attempt,
       copy.instance_id AS instance, coalesce(copy.at, line.due_at) AS at, copy.kind, copy.code,
       coalesce(copy.reason, line.why) AS reason
  FROM (SELECT message_id, 'queued' AS place, host_id, sequence, subscription_id, service_id, attempt, instance_id,
               NULL::timestamptz AS at, NULL AS kind, NULL AS code, NULL AS reason
          FROM queue
         WHERE host_id = ANY (ARRAY(SELECT id FROM host))
           AND (subqueue = ANY (ARRAY(SELECT subqueue FROM service WHERE id = ANY (%(service)s::integer[])) || 0)
                OR %(service)s::integer[] IS NULL)
           AND priority = ANY ('{0,1,2,3,4,5,6,7,8,9,10}'::smallint[])
           AND sequence BETWEEN %(first)s AND %(last)s
           AND message_id = ANY (%(message)s)
         UNION
        SELECT message_id, 'queued', host_id, sequence, subscription_id, service_id, attempt, instance_id, NULL, NULL, NULL, NULL
          FROM queue
         WHERE instance_id = ANY (%(instance)s::uuid[]) AND message_id = ANY (%(message)s)
         UNION ALL
        SELECT message_id, 'claimed', host_id, sequence, subscription_id, service_id, attempt, instance_id, claimed_at, NULL,
               NULL, NULL
          FROM claimed
         WHERE host_id = ANY (ARRAY(SELECT id FROM host))
           AND sequence BETWEEN %(first)s AND %(last)s
           AND message_id = ANY (%(message)s)
         UNION ALL
        SELECT message_id, 'waiting', host_id, sequence, subscription_id, service_id, attempt, instance_id, due_at, NULL, NULL,
               reason
          FROM scheduled
         WHERE host_id = ANY (ARRAY(SELECT id FROM host))
           AND sequence BETWEEN %(first)s AND %(last)s
           AND message_id = ANY (%(message)s)
         UNION ALL
        SELECT message_id, 'suspended', host_id, sequence, subscription_id, service_id, attempt, instance_id, suspended_at, kind,
               code, reason
          FROM suspended
         WHERE message_id = ANY (%(message)s)
         UNION ALL
        SELECT message_id, 'held', host_id, sequence, subscription_id, NULL, NULL, instance_id, NULL, NULL, NULL, NULL
          FROM held
         WHERE message_id = ANY (%(message)s)) AS copy
  JOIN host ON host.id = copy.host_id
  LEFT JOIN instance ON copy.place = 'held' AND instance.host_id = copy.host_id AND instance.id = copy.instance_id
  LEFT JOIN service ON service.id = coalesce(copy.service_id, instance.service_id)
  LEFT JOIN LATERAL (SELECT CASE WHEN lease.blocked_by IS NULL THEN lease.blocked_until END AS due_at,
                            CASE WHEN lease.blocked_by = 0 THEN 'Its port is ordered: what began before that has to end first.'
                                 WHEN lease.blocked_by IS NOT NULL
                                 THEN concat('Its port is ordered, and first somebody has to deal with suspended message ',
                                             (SELECT suspended.message_id
                                                FROM suspended
                                               WHERE suspended.sequence = lease.blocked_by), '.')
                                 WHEN first.sequence < copy.sequence
                                 THEN concat('Its port is ordered, and message ', first.message_id, ' is before it: ',
                                             lease.reason)
                                 ELSE coalesce(lease.reason, '') END AS why
                       FROM subqueue_lease AS lease
                       LEFT JOIN LATERAL (SELECT queue.sequence, queue.message_id
                                            FROM queue
                                           WHERE queue.host_id = lease.host_id AND queue.subqueue = lease.service_id
                                             AND queue.subqueue > 0
                                           ORDER BY queue.sequence
                                           LIMIT 1) AS first ON true
                      WHERE copy.place = 'queued' AND lease.service_id = service.subqueue
                        AND lease.blocked_until > clock()) AS line ON true
 ORDER BY copy.sequence;


-- name: find_stored
-- Messages that are in the box, with the names and sizes of their parts and why hosts were refused.
SELECT message.id, message.context, message.created_at AS at,
       ARRAY(SELECT part.name
               FROM unnest(message.parts) WITH ORDINALITY AS place (id, number)
               JOIN part ON part.id = place.id
              ORDER BY place.number) AS names,
       ARRAY(SELECT part.size
               FROM unnest(message.parts) WITH ORDINALITY AS place (id, number)
               JOIN part ON part.id = place.id
              ORDER BY place.number) AS sizes,
       (SELECT coalesce(json_agg(json_build_array(refusal.subscription_id, refusal.labels)), '[]')
          FROM refusal
         WHERE refusal.message_id = message.id) AS refusals
  FROM shown_message AS message
 WHERE message.id = ANY (%(message)s);


-- name: find_at
-- The messages at a place in the ledger: one, unless the box was restored and has gone on as another.
SELECT id FROM message WHERE id BETWEEN %(lowest)s AND %(highest)s
 UNION
SELECT message_id FROM suspended WHERE message_id BETWEEN %(lowest)s AND %(highest)s
 UNION
SELECT id FROM track_few, unnest(message_ids) AS id WHERE id BETWEEN %(lowest)s AND %(highest)s;


-- name: list_segments_at
-- The segments of the track that may hold messages with ids from here to there.
SELECT content FROM track_published WHERE ids && message_range(%(lowest)s, %(highest)s, '[]');
