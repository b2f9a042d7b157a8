-- The track: what was published and what became of it, written in the transaction in which it happened.


-- name: list_track_levels
-- What is tracked where: every location with its application, and the services of which not just events are tracked.
SELECT kind, id, name, application, track FROM track_level;


-- name: list_personal
SELECT name FROM property WHERE personal;


-- name: read_last_reference
-- The last number that was drawn before this: no reference that comes now has a lower one.
SELECT last_value FROM reference_sequence;


-- name: track_published
-- A segment: messages of one transaction, application and label set. What is kept apart has tables of its own.
WITH made AS (
    INSERT INTO track_published (epoch, application, labels, ids, messages, first_reference, last_reference, filter, content)
    SELECT %(epoch)s, coalesce(%(application)s::text, (SELECT application FROM service WHERE id = %(service)s::integer)),
           %(labels)s::text[], message_range(%(lowest)s, %(highest)s, '[]'), %(messages)s, %(first)s,
           (SELECT last_value FROM reference_sequence), %(filter)b::bytea, %(content)b::bytea
    RETURNING at, segment
), personal AS (
    INSERT INTO track_personal (at, segment, filter, content)
    SELECT at, segment, %(personal_filter)b::bytea, %(personal)b::bytea FROM made WHERE %(personal)b::bytea IS NOT NULL
)
INSERT INTO track_body (at, segment, content)
SELECT at, segment, %(bodies)b::bytea FROM made WHERE %(bodies)b::bytea IS NOT NULL;


-- name: find_segments
-- Segments that may hold messages of these ids.
SELECT DISTINCT ON (at, segment) at, segment, transaction, epoch, application, first_reference, last_reference, content
  FROM unnest(%(ids)s::uuid[]) AS wanted (id)
  JOIN track_published ON track_published.ids @> wanted.id
 ORDER BY at, segment;


-- name: load_segment
SELECT at, segment, transaction, epoch, application, first_reference, last_reference, content
  FROM track_published
 WHERE at = %(at)s AND segment = %(segment)s;


-- name: may_read_personal
SELECT has_column_privilege('track_personal', 'content', 'SELECT');


-- name: load_personal
SELECT segment, content FROM track_personal WHERE segment = ANY (%(segment)s::bigint[]);


-- name: load_bodies
SELECT content FROM track_body WHERE segment = ANY (%(segment)s::bigint[]);


-- name: search_segments
-- Segments of a window that may hold what is sought, the latest first. What is sought is an OR of groups, each an AND of
-- terms, each an OR of values: where a value is in a filter, and its bits. Of each filter one block is read.
SELECT published.at, published.until, published.segment
  FROM track_published AS published
  LEFT JOIN shown_filter AS personal ON %(personal)s AND personal.segment = published.segment AND personal.at = published.at
 WHERE published.at BETWEEN coalesce(%(since)s::timestamptz, '-infinity') - interval '1 minute'
                        AND coalesce(%(until)s::timestamptz, 'infinity')
   AND published.until >= coalesce(%(since)s::timestamptz, '-infinity')
   AND (NOT %(filtered)s
        OR EXISTS (SELECT
                     FROM (SELECT sought.group_number, sought.term,
                                  bool_or(coalesce(('x' || encode(substring(
                                              CASE WHEN sought.personal THEN personal.filter ELSE published.filter END
                                              FROM (1 + 32 * (sought.place
                                                              * (octet_length(CASE WHEN sought.personal THEN personal.filter
                                                                                   ELSE published.filter END) / 32)
                                                              >> 32))::integer
                                              FOR 32), 'hex'))::bit(256) & sought.mask::bit(256)
                                          = sought.mask::bit(256), false)) AS holds
                             FROM unnest(%(group_number)s::integer[], %(term)s::integer[], %(place)s::bigint[],
                                         %(mask)s::text[], %(apart)s::boolean[])
                                  AS sought (group_number, term, place, mask, personal)
                            GROUP BY sought.group_number, sought.term) AS term
                    GROUP BY term.group_number
                   HAVING bool_and(term.holds)))
 ORDER BY published.until DESC, published.segment DESC;


-- name: segments_at
-- Segments with messages that were published at these times. Packed ones span less than a minute.
SELECT DISTINCT published.at, published.until, published.segment
  FROM unnest(%(at)s::timestamptz[]) AS moment (at)
  JOIN track_published AS published ON published.at BETWEEN moment.at - interval '1 minute' AND moment.at
                                   AND published.until >= moment.at;


-- name: find_few
-- What was published a few at a time and is not packed yet: as many rows as some seconds make.
SELECT at, transaction, epoch, ARRAY(SELECT unnest(message_ids)) AS message_ids,
       contexts, ARRAY(SELECT unnest(references_to)) AS references_to,
       ARRAY(SELECT unnest(subscriptions)) AS subscriptions,
       CASE WHEN octet_length(exceptions::text) <= 33554432 THEN exceptions::text END AS exceptions,
       CASE WHEN octet_length(origins::text) <= 33554432 THEN origins::text END AS origins,
       first_reference, last_reference, NULL::uuid[] AS body_of, NULL::bytea[] AS bodies, publisher
  FROM shown_few
 WHERE (%(ids)s::uuid[] IS NULL OR message_ids && %(ids)s::uuid[])
   AND (%(transactions)s::bigint[] IS NULL OR transaction = ANY (%(transactions)s::bigint[]))
   AND at BETWEEN coalesce(%(since)s::timestamptz, '-infinity') AND coalesce(%(until)s::timestamptz, 'infinity')
 ORDER BY at, transaction;


-- name: find_few_bodies
-- The same with the bodies that are kept.
SELECT at, transaction, epoch, ARRAY(SELECT unnest(message_ids)) AS message_ids,
       ARRAY(SELECT unnest(contexts)::text) AS contexts, ARRAY(SELECT unnest(references_to)) AS references_to,
       ARRAY(SELECT unnest(subscriptions)) AS subscriptions,
       CASE WHEN octet_length(exceptions::text) <= 33554432 THEN exceptions::text END AS exceptions,
       CASE WHEN octet_length(origins::text) <= 33554432 THEN origins::text END AS origins,
       first_reference, last_reference, body_of, bodies, publisher
  FROM track_few
 WHERE (%(ids)s::uuid[] IS NULL OR message_ids && %(ids)s::uuid[])
   AND (%(transactions)s::bigint[] IS NULL OR transaction = ANY (%(transactions)s::bigint[]))
   AND at BETWEEN coalesce(%(since)s::timestamptz, '-infinity') AND coalesce(%(until)s::timestamptz, 'infinity')
 ORDER BY at, transaction;


-- name: take_few
-- Take out some of what was published a few at a time, to pack it in the same transaction: so many rows, and no more bytes than
-- there is room for, but one row however large it is. Whether that was all is said too. Ids and what was noted take many times
-- their bytes in Python. What was noted in more than 32 MB is left out, here and above: nobody who publishes a few notes so much.
WITH seen AS MATERIALIZED (
    SELECT ctid AS place,
           coalesce(pg_column_size(contexts), 0) + coalesce(pg_column_size(bodies), 0)
           + least(coalesce(octet_length(origins::text), 0) + 8::bigint * coalesce(octet_length(exceptions::text), 0), 9 * 33554432)
           + 200::bigint * (cardinality(message_ids) + cardinality(references_to)) AS bytes
      FROM track_few
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT counted.place
      FROM (SELECT place, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) - bytes AS before FROM seen) AS counted
     WHERE counted.before < %(bytes)s
)
DELETE FROM track_few
 WHERE ctid = ANY (ARRAY (SELECT place FROM chosen))
RETURNING at, transaction, epoch, ARRAY(SELECT unnest(message_ids)) AS message_ids,
          ARRAY(SELECT unnest(contexts)::text) AS contexts, ARRAY(SELECT unnest(references_to)) AS references_to,
          ARRAY(SELECT unnest(subscriptions)) AS subscriptions,
          CASE WHEN octet_length(exceptions::text) <= 33554432 THEN exceptions::text END AS exceptions,
          CASE WHEN octet_length(origins::text) <= 33554432 THEN origins::text END AS origins,
          first_reference, last_reference, body_of, bodies, publisher,
          (SELECT count(*) FROM seen) > (SELECT count(*) FROM chosen) AS more;


-- name: list_places
-- Locations and services: their names, applications and hosts.
SELECT 'location' AS kind, id, name, application, host_id FROM receive_location WHERE id = ANY (%(location)s::integer[])
 UNION ALL
SELECT 'service', id, name, application, host_id FROM service WHERE id = ANY (%(service)s::integer[]);


-- name: list_publishers
-- The hosts for which database users may speak; for none if the user is gone.
SELECT name, CASE WHEN to_regrole(quote_ident(name)) IS NULL THEN '{}'::smallint[] ELSE coalesce(own_hosts(name::name), '{}') END
  FROM unnest(%(name)s::text[]) AS name;


-- name: list_parents
-- The messages whose references a transaction settled, among these claims of what it settled.
SELECT row.transaction, claim.sequence, settled.message_id
  FROM unnest(%(transaction)s::bigint[], %(sequence)s::bigint[]) AS claim (transaction, sequence)
  JOIN track_settled AS row ON row.block = claim.sequence >> 12 AND row.transaction = claim.transaction
 CROSS JOIN unnest(row.sequence, row.message_id) AS settled (sequence, message_id)
 WHERE settled.sequence = claim.sequence & 4095
 GROUP BY row.transaction, claim.sequence, settled.message_id;


-- name: list_settled
-- What became of references of these messages, where their numbers are in these ranges.
SELECT row.at, row.event, settled.message_id, row.host_id, (row.block << 12) + settled.sequence AS sequence,
       settled.service_id, row.attempt, row.claimed_at, row.code, row.reason, settled.instance_id, row.transaction
  FROM track_settled AS row
 CROSS JOIN unnest(row.sequence, row.message_id, row.service_id, row.instance_id)
       AS settled (sequence, message_id, service_id, instance_id)
 WHERE row.block = ANY (ARRAY(SELECT DISTINCT generate_series(span.first >> 12, span.last >> 12)
                                FROM unnest(%(first)s::bigint[], %(last)s::bigint[]) AS span (first, last)))
   AND settled.message_id = ANY (%(message)s::uuid[])
   AND EXISTS (SELECT
                 FROM unnest(%(first)s::bigint[], %(last)s::bigint[]) AS span (first, last)
                WHERE (row.block << 12) + settled.sequence BETWEEN span.first AND span.last)
 ORDER BY row.at, row.transaction, sequence;


-- name: make_track_partitions
SELECT make_track_partitions(%(parent)s, %(days)s);


-- name: drop_track_partitions
SELECT drop_track_partitions(%(parent)s, %(kept)s);


-- name: pack_few
-- A segment of messages that were published a few at a time, of one application and label set.
WITH made AS (
    INSERT INTO track_published (at, until, transaction, epoch, application, labels, ids, messages, first_reference,
                                 last_reference, filter, content)
    VALUES (%(at)s, %(until)s, 0, %(epoch)s, %(application)s, %(labels)s::text[],
            message_range(%(lowest)s, %(highest)s, '[]'), %(messages)s, %(first)s, %(last)s, %(filter)b::bytea,
            %(content)b::bytea)
    RETURNING at, segment
), personal AS (
    INSERT INTO track_personal (at, segment, filter, content)
    SELECT at, segment, %(personal_filter)b::bytea, %(personal)b::bytea FROM made WHERE %(personal)b::bytea IS NOT NULL
)
INSERT INTO track_body (at, segment, content)
SELECT at, segment, %(bodies)b::bytea FROM made WHERE %(bodies)b::bytea IS NOT NULL;
