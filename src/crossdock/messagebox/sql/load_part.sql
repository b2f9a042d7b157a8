-- The body of a part that is stored whole.
SELECT body
  FROM part
 WHERE id = %(part)s;
