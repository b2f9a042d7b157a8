-- Record messages as delivered, and give those that were new. A message that another process is delivering right now
-- is waited for. In the order of the ids, so that two that record the same messages wait and do not deadlock.
INSERT INTO crossdock_delivery (message_id, statement, delivered_at)
SELECT id, :statement, now()
  FROM unnest(CAST(:ids AS uuid[])) AS given (id)
 ORDER BY id
    ON CONFLICT DO NOTHING
RETURNING message_id;
