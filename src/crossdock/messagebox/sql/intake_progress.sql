-- How far a source is published: where its next range begins, and how many messages came before. One that was read whole
-- has no end of a range, and no next one.
SELECT coalesce(max(coalesce(range_end, 9223372036854775807)), 0), coalesce(sum(received), 0)::bigint
  FROM publication
 WHERE intake_sequence = %(sequence)s;
