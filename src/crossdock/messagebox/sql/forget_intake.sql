-- Delete the ledger rows of sources that were published and then removed.
DELETE FROM intake
 WHERE sequence = ANY(%(sequence)s);
