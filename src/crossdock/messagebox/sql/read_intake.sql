-- The sources of a micro-batch that are not published yet, of one host or of all.
SELECT sequence, location_id, identity, size, attempts
  FROM intake
 WHERE sequence > %(start)s AND sequence <= %(end)s
   AND (SELECT true FROM publication WHERE intake_sequence = intake.sequence AND last LIMIT 1) IS NULL
   AND (%(host)s::smallint IS NULL OR location_id IN (SELECT id FROM receive_location WHERE host_id = %(host)s))
 ORDER BY sequence;
