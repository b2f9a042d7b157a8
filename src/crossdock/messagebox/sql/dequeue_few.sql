-- The same as dequeue, with the messages, where they have one small part: for a few references another round trip would take
-- longer than sending a body twice.
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
), taken AS (
    INSERT INTO {claimed} (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line,
                           instance_id, deaths, claimed_by, claimed_at)
    SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
           deaths, %(instance)s, %(now)s
      FROM ready
    RETURNING priority, sequence, message_id, subscription_id, service_id, attempt, line, instance_id,
              xmin::text::bigint AS claim, deaths
)
SELECT taken.*, message.context, message.name, message.body
  FROM taken
  LEFT JOIN LATERAL (SELECT context::text, part.name, part.body
                       FROM message, LATERAL (SELECT name, body
                                                FROM part
                                               WHERE id = message.parts[1] AND size <= %(held)s AND fragments = 0
                                               LIMIT 1) AS part
                      WHERE message.id = taken.message_id AND message.part_count = 1
                      LIMIT 1) AS message ON true;
