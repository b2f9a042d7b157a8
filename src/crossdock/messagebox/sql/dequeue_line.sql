-- Claim the first references of an ordered line whose lease this instance has just taken. A statement of its own, after
-- the lease: it must see what the holder before put back.
WITH ready AS (
    DELETE FROM {queue}
     WHERE ctid = ANY (ARRAY(SELECT ctid
                               FROM {queue}
                              WHERE host_id = %(host)s AND line = %(line)s AND line > 0
                              ORDER BY sequence
                              LIMIT %(limit)s
                                FOR UPDATE))
    RETURNING *
)
INSERT INTO {claimed} (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
                       deaths, claimed_by, claimed_at)
SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
       deaths, %(instance)s, %(now)s
  FROM ready
RETURNING priority, sequence, message_id, subscription_id, service_id, attempt, line, instance_id,
          xmin::text::bigint AS claim, deaths;
