-- Record messages as delivered, and give those that were new. A message that another process is delivering right now
-- is waited for. In the order of the ids, so that two that record the same messages wait and do not deadlock.
-- The digest of the content stands behind the statement: an id that is given a second time, to another message, is new.
-- Rows from before there were digests have none, and count for every content.
INSERT INTO crossdock_delivery (message_id, statement, delivered_at)
SELECT given.id, CAST(:statement AS text) || ' ' || given.digest, now()
  FROM unnest(CAST(:ids AS uuid[]), CAST(:digests AS text[])) AS given (id, digest)
 WHERE NOT EXISTS (SELECT FROM crossdock_delivery AS older
                    WHERE older.message_id = given.id AND older.statement = CAST(:statement AS text))
 ORDER BY given.id, given.digest
    ON CONFLICT DO NOTHING
RETURNING message_id, split_part(statement, ' ', 2);
