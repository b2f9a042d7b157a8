-- Hosts with their living instances and their queues; the oldest is the message that has waited longest to be taken.
SELECT host.name, host.labels,
       (SELECT count(*) FROM host_instance WHERE host_instance.host_id = host.id)   AS instances,
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
