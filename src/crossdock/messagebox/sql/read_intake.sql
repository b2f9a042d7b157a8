-- The sources of a micro-batch that are not published yet.
SELECT sequence, location_id, identity, size
  FROM intake
 WHERE sequence > %(start)s AND sequence <= %(end)s
   AND NOT EXISTS (SELECT FROM publication WHERE intake_sequence = intake.sequence AND last)
 ORDER BY sequence;
