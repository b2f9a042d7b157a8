-- Claim ready references for one host instance: move them, so that no row is updated in place and no transaction stays
-- open while they are delivered. SKIP LOCKED lets instances share the queue. Each scan begins at the mark of its line and
-- priority, past the rows that are gone but that an open reader keeps from being cleaned away.
WITH ready AS (
    DELETE FROM {queue}
     WHERE ctid = ANY (ARRAY(SELECT found.place
                               FROM unnest(%(line)s::integer[], %(priority)s::smallint[], %(mark)s::bigint[])
                                    AS start (line, priority, sequence),
                                    LATERAL (SELECT ctid AS place
                                               FROM {queue}
                                              WHERE host_id = %(host)s
                                                AND line = start.line
                                                AND priority = start.priority
                                                AND sequence >= start.sequence
                                                AND (service_id = ANY (%(services)s::integer[])) = %(only)s
                                              ORDER BY sequence
                                              LIMIT %(limit)s
                                                FOR UPDATE SKIP LOCKED) AS found
                              LIMIT %(limit)s))
    RETURNING *
)
INSERT INTO {claimed} (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
                       deaths, claimed_by, claimed_at)
SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
       deaths, %(instance)s, %(now)s
  FROM ready
RETURNING priority, sequence, message_id, subscription_id, service_id, attempt, line, instance_id,
          xmin::text::bigint AS claim, deaths;
