-- References that only one host instance may take, and it is gone: nobody else waits for them. A statement of its own,
-- after the waiting subscriptions were deleted: it must see what a publisher that held them gave meanwhile.
WITH orphan AS (
    DELETE FROM {queue}
     WHERE host_id = %(host)s AND line < 0 AND -line NOT IN (SELECT id FROM host_instance)
    RETURNING *
)
INSERT INTO {suspended} (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt, instance_id,
                         reason)
SELECT host_id, sequence, 'response', message_id, subscription_id, service_id, priority, attempt, instance_id,
       'The process that waited for this response is gone.'
  FROM orphan;
