-- One fragment of a large part.
SELECT body
  FROM fragment
 WHERE part_id = %(part)s AND number = %(number)s;
