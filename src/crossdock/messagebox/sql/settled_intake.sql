-- Sources whose messages are in the MessageBox and that can be removed where they came from.
SELECT sequence, location_id, identity
  FROM intake
 WHERE sequence > %(after)s
   AND EXISTS (SELECT FROM publication WHERE intake_sequence = intake.sequence AND last)
 ORDER BY sequence
 LIMIT %(limit)s;
