-- Erasing what is tracked about a person: a mark that every reader goes by at once, then segments without it.


-- name: erase
-- Mark messages. Gives how many were not marked before.
WITH marked AS (
    INSERT INTO erased_message (message_id)
    SELECT DISTINCT id FROM unnest(%(message)s::uuid[]) AS id
        ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM marked;


-- name: list_erased
SELECT message_id FROM erased_message;


-- name: take_erased_segments
-- Segments that may hold marked messages, to be rewritten in this transaction. Days that are dropped go with all they hold.
SELECT at, segment, transaction, epoch, application, first_reference, last_reference, content
  FROM track_published
 WHERE (at, segment) IN (SELECT published.at, published.segment
                           FROM unnest(%(message)s::uuid[]) AS wanted (id)
                           JOIN track_published AS published ON published.ids @> wanted.id)
 ORDER BY at, segment
   FOR UPDATE;


-- name: rewrite_segment
WITH personal AS (
    UPDATE track_personal
       SET filter = %(personal_filter)b::bytea, content = %(personal)b::bytea
     WHERE segment = %(segment)s AND %(personal)b::bytea IS NOT NULL
), body AS (
    UPDATE track_body SET content = %(bodies)b::bytea WHERE segment = %(segment)s AND %(bodies)b::bytea IS NOT NULL
)
UPDATE track_published SET filter = %(filter)b::bytea, content = %(content)b::bytea WHERE at = %(at)s AND segment = %(segment)s;


-- name: forget_erased
-- Marks of messages that are rewritten. What is not packed yet keeps its mark.
DELETE FROM erased_message
 WHERE message_id = ANY (%(message)s::uuid[])
   AND NOT EXISTS (SELECT FROM track_few WHERE erased_message.message_id = ANY (track_few.message_ids));
