-- Hosts with their living instances and their queues; the oldest is the message that has waited longest to be taken.
-- An instance lives while its lock is held: the row of one that ended stays until somebody looks after it. One that hangs
-- may hold its lock and say nothing any more; one that is stopping has no more to say.
SELECT host.name, host.labels,
       (SELECT coalesce(json_agg(json_build_object('machine', machine, 'process', process, 'class', class,
                                                   'state', CASE WHEN state <> 'stopping' AND seen_at < now() - %(silence)s::interval
                                                                 THEN 'silent'
                                                                 ELSE state END,
                                                   'in_hand', in_hand, 'started_at', started_at, 'seen_at', seen_at)
                                 ORDER BY id), '[]')
          FROM host_instance
         WHERE host_instance.host_id = host.id
           AND EXISTS (SELECT
                         FROM pg_locks
                        WHERE locktype = 'advisory'
                          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                          AND classid = %(lock)s::integer::oid
                          AND objid = host_instance.id::oid
                          AND objsubid = 2
                          AND granted))                                             AS instances,
       (SELECT count(*) FROM queue WHERE queue.host_id = host.id)                   AS ready,
       (SELECT count(*) FROM claimed WHERE claimed.host_id = host.id)               AS claimed,
       (SELECT count(*) FROM scheduled WHERE scheduled.host_id = host.id)           AS waiting,
       (SELECT count(*) FROM suspended WHERE suspended.host_id = host.id)           AS suspended,
       (SELECT message.created_at
          FROM queue
          JOIN message ON message.id = queue.message_id
         WHERE queue.host_id = host.id
         ORDER BY queue.sequence
         LIMIT 1)                                                                   AS oldest
  FROM host
 ORDER BY host.id;
