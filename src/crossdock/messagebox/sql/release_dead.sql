-- Free the references of host instances that are gone. An instance lives while a session holds its advisory lock; getting
-- that lock proves it is gone. Right after a server start the living need a moment to come back, hence the grace.
WITH dead AS MATERIALIZED (
    SELECT id
      FROM host_instance
     WHERE host_id = %(host)s
       AND now() > pg_postmaster_start_time() + %(grace)s
       AND pg_try_advisory_xact_lock(%(lock)s, id)
), freed AS (
    DELETE FROM claimed
     WHERE host_id = %(host)s
       AND (claimed_by IN (SELECT id FROM dead) OR claimed_by NOT IN (SELECT id FROM host_instance))
    RETURNING *
), forgotten AS (
    DELETE FROM host_instance
     USING dead
     WHERE host_instance.id = dead.id
)
INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt)
SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt + 1
  FROM freed;
