-- What instances were given and did not take before they ended. A statement of its own, after their subscriptions are gone:
-- it must see what a publisher that held them gave meanwhile.
WITH discarded AS (
    DELETE FROM queue
     WHERE instance_id = ANY(%(instance)s)
    RETURNING host_id, sequence, message_id, subscription_id, service_id, priority, attempt, instance_id
), postponed AS (
    DELETE FROM scheduled
     WHERE instance_id = ANY(%(instance)s)
    RETURNING host_id, sequence, message_id, subscription_id, service_id, priority, attempt, instance_id
), suspension AS (
    INSERT INTO suspended (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt,
                           instance_id, reason)
    SELECT *, 'The instance ended without taking this message.'
      FROM (SELECT host_id, sequence, 'discarded', message_id, subscription_id, service_id, priority, attempt, instance_id
              FROM discarded
             UNION ALL
            SELECT host_id, sequence, 'discarded', message_id, subscription_id, service_id, priority, attempt, instance_id
              FROM postponed) AS gone
    RETURNING 1
)
SELECT count(*) FROM suspension;
