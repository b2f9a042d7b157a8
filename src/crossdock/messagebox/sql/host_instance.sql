-- Host instances and the server they work on.


-- name: register_instance
-- A new life of a host instance, under an id that its process drew. One statement: others see the row only once its lock is
-- held. The life before, if there was one, was lost and did not end.
WITH lost AS (
    UPDATE host_instance SET state = 'lost' WHERE id = %(before)s
), registered AS (
    INSERT INTO host_instance (id, host_id, class, machine, process)
    VALUES (%(host_instance)s, %(host)s, %(class)s, %(machine)s, %(process)s)
    RETURNING id
)
SELECT id, pg_advisory_lock(%(lock)s, id) FROM registered;


-- name: list_living
-- The instances of a host, of one service class, that share its work, in the order in which they began. An instance lives
-- while its lock is held: the row of one that ended stays until somebody looks after it. Who is about to stop, is stuck or
-- has not been heard of for a while has no part; and who has just come has none as long as there are others, so that one
-- that comes and dies again and again keeps nobody from working. A clock that was set back makes nobody young or heard of.
WITH living AS (
    SELECT id, started_at, clock() NOT BETWEEN started_at AND started_at + %(grown)s::interval AS grown
      FROM host_instance
     WHERE host_id = %(host)s
       AND class = %(class)s
       AND state NOT IN ('stopping', 'stuck')
       AND clock() BETWEEN seen_at - %(silence)s::interval AND seen_at + %(silence)s::interval
       AND EXISTS (SELECT
                     FROM pg_locks
                    WHERE locktype = 'advisory'
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                      AND classid = %(lock)s::integer::oid
                      AND objid = host_instance.id::oid
                      AND objsubid = 2
                      AND granted)
)
SELECT id FROM living WHERE grown OR NOT EXISTS (SELECT FROM living WHERE grown) ORDER BY started_at, id;


-- name: list_hosts
-- Hosts with their living instances and their queues; the oldest is the message that has waited longest to be taken.
-- An instance lives while its lock is held: the row of one that ended stays until somebody looks after it. One that hangs
-- may hold its lock and say nothing any more; one that is stopping has no more to say.
SELECT host.name, host.labels,
       (SELECT coalesce(json_agg(json_build_object('machine', machine, 'process', process, 'class', class,
                                                   'state', CASE WHEN state <> 'stopping' AND clock() NOT BETWEEN seen_at - %(silence)s::interval
                                                                                                  AND seen_at + %(silence)s::interval
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


-- name: read_moment
-- Which server and database this is, and how far its log has come. The control file may name an older timeline than the one
-- that is written; a standby writes none.
SELECT system_identifier,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
       CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint END
  FROM pg_control_system();


-- name: say_state
-- How an instance is, and that it is heard of.
UPDATE host_instance SET seen_at = clock(), state = %(state)s, in_hand = %(in_hand)s WHERE id = %(instance)s;
