-- Note that a source is being tried, and commit that before it is read: whoever comes after the end of the process knows it.
-- The row stays locked for no longer, and no publisher waits for it: none changes the key.
UPDATE intake
   SET attempts = greatest(0, CASE WHEN %(afresh)s THEN 0 ELSE attempts END + %(change)s)
 WHERE sequence = %(sequence)s
RETURNING attempts;
