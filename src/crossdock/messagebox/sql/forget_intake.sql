-- Delete ledger rows: of sources that were removed after publishing, or that vanished or changed before it.
DELETE FROM intake
 WHERE sequence = ANY(%(sequence)s);
