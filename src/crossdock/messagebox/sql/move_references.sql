-- A service has moved to another host: what waits for it goes along, except what only one host instance may take. What is
-- claimed is settled where it is.
WITH queued AS (
    DELETE FROM queue WHERE service_id = %(service)s AND host_id <> %(host)s AND line >= 0 RETURNING *
), postponed AS (
    DELETE FROM scheduled WHERE service_id = %(service)s AND host_id <> %(host)s AND line >= 0 RETURNING *
), kept AS (
    DELETE FROM suspended WHERE service_id = %(service)s AND host_id <> %(host)s AND line >= 0 RETURNING *
), moved_queued AS (
    INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
                       deaths)
    SELECT %(host)s, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id, deaths
      FROM queued
), moved_postponed AS (
    INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line,
                           instance_id, due_at, reason)
    SELECT %(host)s, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id, due_at, reason
      FROM postponed
)
INSERT INTO suspended (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt, reason,
                       suspended_at, instance_id)
SELECT %(host)s, sequence, kind, message_id, subscription_id, service_id, priority, attempt, reason, suspended_at, instance_id
  FROM kept;
