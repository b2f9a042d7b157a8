-- Delete ledger rows of sources that were not published: they vanished, changed, or cannot be read now.
DELETE FROM intake
 WHERE sequence = ANY(%(sequence)s)
   AND (SELECT true FROM publication WHERE intake_sequence = intake.sequence LIMIT 1) IS NULL;
