-- One fragment of a large part.
INSERT INTO fragment (part_id, number, body)
VALUES (%(part)s, %(number)s, %(body)b);
