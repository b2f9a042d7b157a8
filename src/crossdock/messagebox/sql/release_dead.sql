-- Free the references, leases and waiting subscriptions of host instances that are gone. An instance lives while a session
-- holds its advisory lock; getting that lock proves it is gone. Right after a server start the living need a moment to
-- come back, hence the grace. What a process had in hand that ended otherwise than by losing its connection, or by
-- stopping, may have ended it: it keeps its attempts and counts a death, another one if it was noted as being delivered.
WITH dead AS MATERIALIZED (
    SELECT id, delivering, state NOT IN ('lost', 'stopping') AS died
      FROM host_instance
     WHERE host_id = %(host)s
       AND now() > pg_postmaster_start_time() + %(grace)s
       AND pg_try_advisory_xact_lock(%(lock)s, id)
), freed AS (
    DELETE FROM {claimed}
     WHERE host_id = %(host)s
       AND (claimed_by IN (SELECT id FROM dead) OR claimed_by NOT IN (SELECT id FROM host_instance))
    RETURNING *
), stale AS (
    SELECT service_id, held_by
      FROM ordered_line
     WHERE host_id = %(host)s
       AND held_by IS NOT NULL
       AND (held_by IN (SELECT id FROM dead) OR held_by NOT IN (SELECT id FROM host_instance))
), released AS (
    -- Compared with what was seen: a new holder, whom this snapshot does not know, keeps it.
    UPDATE ordered_line
       SET held_by = NULL
      FROM stale
     WHERE ordered_line.service_id = stale.service_id AND ordered_line.held_by = stale.held_by
), unsubscribed AS (
    DELETE FROM instance_subscription
     WHERE host_id = %(host)s
       AND bound_to IS NOT NULL
       AND (bound_to IN (SELECT id FROM dead) OR bound_to NOT IN (SELECT id FROM host_instance))
), forgotten AS (
    DELETE FROM host_instance
     USING dead
     WHERE host_instance.id = dead.id
), returned AS (
    INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
                       deaths)
    SELECT CASE WHEN freed.line < 0 THEN freed.host_id ELSE service.host_id END, freed.sequence, freed.priority,
           freed.message_id, freed.subscription_id, freed.service_id, freed.attempt, freed.line, freed.instance_id,
           CASE WHEN dead.died IS NOT TRUE THEN freed.deaths
                WHEN freed.sequence = ANY (dead.delivering) THEN freed.deaths + 1
                ELSE greatest(freed.deaths, 1)
            END
      FROM freed
      JOIN service ON service.id = freed.service_id
      LEFT JOIN dead ON dead.id = freed.claimed_by
)
SELECT count(*), min(sequence) FROM freed;
