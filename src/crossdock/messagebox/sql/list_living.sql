-- The instances of a host, of one service class, that share its work, in the order in which they began. An instance lives
-- while its lock is held: the row of one that ended stays until somebody looks after it. Who is about to stop, is stuck or
-- has not been heard of for a while has no part; and who has just come has none as long as there are others, so that one
-- that comes and dies again and again keeps nobody from working.
WITH living AS (
    SELECT id, started_at < now() - %(grown)s::interval AS grown
      FROM host_instance
     WHERE host_id = %(host)s
       AND class = %(class)s
       AND state <> 'stopping'
       AND NOT starts_with(state, 'stuck')
       AND seen_at > now() - %(silence)s::interval
       AND EXISTS (SELECT
                     FROM pg_locks
                    WHERE locktype = 'advisory'
                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                      AND classid = %(lock)s::integer::oid
                      AND objid = host_instance.id::oid
                      AND objsubid = 2
                      AND granted)
)
SELECT id FROM living WHERE grown OR NOT EXISTS (SELECT FROM living WHERE grown) ORDER BY id;
