-- Messages and parts in the spool.


-- name: publish_few
-- A few messages, or what the role of a host publishes, with everything that publishing writes.
SELECT publish_few(%(message)s::uuid[], %(context)b::json[], %(part_of)s::uuid[], %(part)s::uuid[], %(name)s::text[],
                   %(body)b::bytea[], %(size)s::bigint[], %(pieces)s::integer[], %(reference)s::uuid[],
                   %(subscription)s::integer[], %(exceptions)s::json, %(lock)s, %(epoch)s, %(location_epoch)s,
                   %(origins)s::json);


-- name: publish_exceptions
-- What publishing writes besides messages and the references that the index found.
SELECT publish_exceptions(%(exceptions)s::json);


-- name: insert_fragment
-- One fragment of a large part.
SELECT insert_fragment(%(part)s, %(number)s, %(body)b);


-- name: load_messages
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


-- name: load_part
-- The body of a part that is stored whole.
SELECT body
  FROM part
 WHERE id = %(part)s;


-- name: load_fragment
-- One fragment of a large part.
SELECT body
  FROM fragment
 WHERE part_id = %(part)s AND number = %(number)s;


-- name: record_reads
-- takes: messages uuid[], action text
-- gives: id uuid, recorded bigint
-- That a person is about to read bodies, of those that it may read: to read or to save them. In a transaction of its own: only
-- once that is committed are they read.
SELECT message.id, audit(%(action)s, message.id::text, NULL, NULL, 'done',
                         (SELECT min(service.application)
                            FROM suspended
                            JOIN service ON service.id = suspended.service_id
                           WHERE suspended.message_id = message.id))
  FROM message
 WHERE message.id = ANY (%(messages)s) AND may_read(message.id);


-- name: read_messages
-- takes: messages uuid[], most bigint
-- gives: id uuid, context text, part_id uuid, name text, body bytea, fragments integer
-- The same for a person who may read bodies. That they are read was recorded a moment ago, by a transaction that is committed:
-- else the person would read, and roll the record back. The record of another act does not say that they were read.
WITH allowed AS MATERIALIZED (
    SELECT message.id, message.context, message.parts
      FROM message
     WHERE message.id = ANY (%(messages)s) AND may_read(message.id)
       AND EXISTS (SELECT
                     FROM audit
                    WHERE audit.target = message.id::text AND audit.database_user = session_user AND audit.outcome = 'done'
                      AND audit.action IN ('read', 'save')
                      AND audit.at > clock() - interval '1 minute'
                      AND audit.transaction IS DISTINCT FROM pg_current_xact_id_if_assigned())
)
SELECT allowed.id, allowed.context::text, part.id, part.name, part.body, part.fragments
  FROM allowed
  LEFT JOIN LATERAL unnest(allowed.parts) WITH ORDINALITY AS place (part_id, number) ON true
  LEFT JOIN LATERAL (SELECT id, name, CASE WHEN size <= %(most)s THEN body END AS body, fragments
                       FROM part
                      WHERE id = place.part_id
                      LIMIT 1) AS part ON true
 ORDER BY allowed.id, place.number;


-- name: read_piece
-- takes: message uuid, part uuid, piece integer
-- gives: body bytea
-- A large part of a message, or one of its fragments, for a person who may read bodies: one that has read the message a while
-- ago, so that it is recorded.
SELECT CASE WHEN %(piece)s IS NULL
            THEN (SELECT part.body FROM part WHERE part.id = %(part)s)
            ELSE (SELECT fragment.body FROM fragment WHERE fragment.part_id = %(part)s AND fragment.number = %(piece)s) END
  FROM message
 WHERE message.id = %(message)s AND %(part)s = ANY (message.parts) AND may_read(message.id)
   AND EXISTS (SELECT
                 FROM audit
                WHERE audit.target = message.id::text AND audit.database_user = session_user AND audit.outcome = 'done'
                  AND audit.action IN ('read', 'save')
                  AND audit.at > clock() - interval '1 day'
                  AND audit.transaction IS DISTINCT FROM pg_current_xact_id_if_assigned());


-- name: find_messages
SELECT id FROM message WHERE id = ANY (%(message)s);


-- name: load_claimed
-- takes: sequence bigint[], limit bigint
-- gives: id uuid, context text, part uuid, name text, body bytea, fragments integer
-- The same for messages of which the host has claimed these references, one of each.
SELECT message.id, message.context::text, part.id, part.name, part.body, part.fragments
  FROM unnest(%(sequence)s::bigint[]) AS wanted (sequence)
 CROSS JOIN LATERAL (SELECT claimed.message_id
                       FROM {claimed} AS claimed
                      WHERE claimed.host_id = %(host)s AND claimed.sequence = wanted.sequence
                      LIMIT 1) AS claimed
 CROSS JOIN LATERAL (SELECT id, context, parts FROM message WHERE id = claimed.message_id LIMIT 1) AS message
  LEFT JOIN LATERAL unnest(message.parts) WITH ORDINALITY AS place (part_id, number) ON true
  LEFT JOIN LATERAL (SELECT id, name, CASE WHEN size <= %(limit)s THEN body END AS body, fragments
                       FROM part
                      WHERE id = place.part_id
                      LIMIT 1) AS part ON true
 ORDER BY message.id, place.number;


-- name: load_claimed_piece
-- takes: sequence bigint, part uuid, number integer
-- gives: body bytea
-- A part, or with a number one of its fragments, of a message of which the host has claimed this reference.
SELECT CASE WHEN %(number)s::integer IS NULL
            THEN (SELECT body FROM part WHERE id = %(part)s::uuid)
            ELSE (SELECT body FROM fragment WHERE part_id = %(part)s::uuid AND number = %(number)s::integer)
       END
  FROM {claimed} AS claimed
  JOIN message ON message.id = claimed.message_id
 WHERE claimed.host_id = %(host)s AND claimed.sequence = %(sequence)s::bigint AND %(part)s::uuid = ANY (message.parts);


-- name: draw_number
-- A number of the ledger for the messages of one process. Drawing alone is not safe from a crash of the server, after which
-- the number could be given again; what is logged with it makes the commit wait until it is on disk.
SELECT nextval(pg_get_serial_sequence('intake', 'sequence')), pg_logical_emit_message(true, 'crossdock', 'number drawn');


-- name: delete_messages
-- Delete the unreferenced messages, what was noted about them, and their references to parts. By an array, which goes by the
-- index however many messages PostgreSQL believes there are.
WITH gone AS (
    DELETE FROM message
     WHERE id = ANY (ARRAY(SELECT id FROM unreferenced))
    RETURNING parts
), reports AS (
    DELETE FROM routing_failure
     WHERE message_id = ANY (ARRAY(SELECT id FROM unreferenced))
), refusals AS (
    DELETE FROM refusal
     WHERE message_id = ANY (ARRAY(SELECT id FROM unreferenced))
), log_1 AS (
    INSERT INTO part_ref_log_1 (part_id, delta)
    SELECT part_id, -1 FROM gone, unnest(parts) AS part_id
     WHERE part_id IS NOT NULL AND (SELECT part FROM reference_log) = 1
), log_2 AS (
    INSERT INTO part_ref_log_2 (part_id, delta)
    SELECT part_id, -1 FROM gone, unnest(parts) AS part_id
     WHERE part_id IS NOT NULL AND (SELECT part FROM reference_log) = 2
)
SELECT count(*) FROM gone;


-- name: delete_parts
-- Delete the unreferenced parts and their fragments.
WITH gone AS (
    DELETE FROM part
     WHERE id = ANY (ARRAY(SELECT id FROM unreferenced))
    RETURNING id, fragments
), pieces AS (
    DELETE FROM fragment
     WHERE part_id = ANY (ARRAY(SELECT id FROM gone WHERE fragments > 0))
)
SELECT count(*) FROM gone;
