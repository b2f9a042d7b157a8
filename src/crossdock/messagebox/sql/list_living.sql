-- The living instances of a host, of one service class, in the order in which they began. An instance lives while its
-- lock is held: the row of one that ended stays until somebody looks after it.
SELECT id
  FROM host_instance
 WHERE host_id = %(host)s
   AND class = %(class)s
   AND EXISTS (SELECT
                 FROM pg_locks
                WHERE locktype = 'advisory'
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND classid = %(lock)s::integer::oid
                  AND objid = host_instance.id::oid
                  AND objsubid = 2
                  AND granted)
 ORDER BY id;
