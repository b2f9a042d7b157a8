-- How far a large source is published: where its next range begins, and how many messages came before.
SELECT coalesce(max(range_end), 0), coalesce(sum(received), 0)::bigint
  FROM publication
 WHERE intake_sequence = %(sequence)s;
