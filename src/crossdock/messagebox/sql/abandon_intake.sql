-- Delete ledger rows of sources that were not published: they vanished, changed, or cannot be read now.
DELETE FROM intake
 WHERE sequence = ANY(%(sequence)s)
   AND NOT EXISTS (SELECT FROM publication WHERE intake_sequence = intake.sequence);
