-- The end of the next micro-batch: the ledger sequence after which the limits on items or bytes would be passed. One item
-- is always taken, however large it is.
WITH following AS (
    SELECT sequence,
           row_number() OVER (ORDER BY sequence)                                        AS items,
           coalesce(sum(size) OVER (ORDER BY sequence ROWS UNBOUNDED PRECEDING), 0)     AS bytes
      FROM (SELECT sequence, size
              FROM intake
             WHERE sequence > %(start)s
               AND (%(host)s::smallint IS NULL OR location_id IN (SELECT id FROM receive_location WHERE host_id = %(host)s))
             ORDER BY sequence
             LIMIT %(items)s) AS nearest
)
SELECT max(sequence)
  FROM following
 WHERE items = 1 OR bytes <= %(bytes)s;
