-- The ledger rows that still live, locked until the end of the transaction. A late second attempt finds no row, since the
-- source has been published, removed and forgotten; it must not publish again.
SELECT sequence
  FROM intake
 WHERE sequence = ANY(%(sequence)s)
   FOR KEY SHARE;
