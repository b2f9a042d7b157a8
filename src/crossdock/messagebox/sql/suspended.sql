-- What waits for a person, and what nobody wants.


-- name: list_suspended
-- Suspended messages, the oldest first. The context is read by Python: it may hold text that SQL cannot, such as \u0000.
-- A message that is gone is listed without one, and without its time what has a time that Python does not have.
SELECT suspended.message_id AS id, suspended.kind, suspended.code, suspended.reason, suspended.attempt,
       CASE WHEN suspended.suspended_at BETWEEN '0001-01-02Z' AND '9999-12-30Z' THEN suspended.suspended_at END AS suspended_at,
       suspended.host_id, suspended.sequence, service.name AS port, message.context::text AS context,
       (SELECT sum(part.size) FROM part WHERE part.id = ANY(message.parts)) AS bytes,
       routing_failure.report::text AS report
  FROM suspended
  LEFT JOIN message ON message.id = suspended.message_id
  LEFT JOIN service ON service.id = suspended.service_id
  LEFT JOIN routing_failure ON routing_failure.message_id = suspended.message_id AND suspended.kind = 'unrouted'
 WHERE %(message)s::uuid[] IS NULL OR suspended.message_id = ANY(%(message)s::uuid[])
 ORDER BY suspended.sequence
 LIMIT %(limit)s;


-- name: list_withheld
-- Of suspended deliveries those that cannot be resumed: their host lacks a label.
SELECT suspended.message_id, service.name, why.withheld
  FROM suspended
  JOIN service ON service.id = suspended.service_id
 CROSS JOIN LATERAL (SELECT why_withheld(suspended.message_id,
                                         CASE WHEN suspended.subqueue < 0 THEN suspended.host_id ELSE service.host_id END)) AS why (withheld)
 WHERE suspended.message_id = ANY(%(message)s) AND suspended.kind IN ('send', 'stopped') AND why.withheld IS NOT NULL;


-- name: resume
-- Deliver suspended references again, from the first attempt on, also where the service is stopped. What the host lacks a
-- label of stays suspended, and says so.
WITH resumed AS (
    DELETE FROM suspended
     WHERE message_id = ANY(%(message)s)
       AND kind IN ('send', 'stopped')
    RETURNING *
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                          0, false, 'resumed', NULL, NULL, NULL, NULL, suspended_at)::moving) AS rows
      FROM resumed
)
SELECT moved.message_id, moved.host_id FROM moving, move_references(moving.rows) AS moved;


-- name: resume_stopped
-- Starting a service resumes what was suspended only because it was stopped. What its host lacks a label of stays, and says
-- so; nothing carries labels where there never were any.
WITH labelled AS MATERIALIZED (
    SELECT id FROM host WHERE labelled
), home AS MATERIALIZED (
    SELECT host_id FROM service WHERE id = %(service)s
), resumed AS (
    DELETE FROM suspended
     WHERE service_id = %(service)s AND kind = 'stopped'
       AND CASE WHEN host_id IN (SELECT id FROM labelled)
                THEN why_withheld(message_id, (SELECT host_id FROM home)) END IS NULL
    RETURNING *
), kept AS (
    UPDATE suspended
       SET kind = 'send', code = 'label-missing', reason = why_withheld(message_id, (SELECT host_id FROM home))
     WHERE service_id = %(service)s AND kind = 'stopped'
       AND CASE WHEN host_id IN (SELECT id FROM labelled)
                THEN why_withheld(message_id, (SELECT host_id FROM home)) END IS NOT NULL
), returned AS (
    INSERT INTO queue (host_id, subqueue, sequence, priority, message_id, subscription_id, service_id, instance_id)
    SELECT service.host_id, CASE WHEN service.ordered THEN coalesce(service.port_id, service.id) ELSE 0 END, resumed.sequence, resumed.priority,
           resumed.message_id, resumed.subscription_id, resumed.service_id, resumed.instance_id
      FROM resumed
      JOIN service ON service.id = resumed.service_id
)
SELECT count(*) FROM resumed;


-- name: terminate
-- End suspended references for good; the message goes with its last one.
WITH ended AS (
    DELETE FROM suspended
     WHERE message_id = ANY(%(message)s)
    RETURNING message_id
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 2
)
SELECT message_id, count(*)
  FROM ended
 GROUP BY message_id;


-- name: purge_suspended
-- End references that have been suspended for longer than somebody said they should be kept.
WITH ended AS (
    DELETE FROM suspended
     WHERE (host_id, sequence) IN (SELECT host_id, sequence
                                     FROM suspended
                                    WHERE suspended_at < clock() - %(age)s::interval
                                    LIMIT %(limit)s
                                      FOR UPDATE SKIP LOCKED)
    RETURNING message_id
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 2
)
SELECT count(*) FROM ended;


-- name: list_unreported
-- Messages that nobody wanted and whose nearest misses are still to be worked out.
SELECT suspended.message_id, message.context::text
  FROM suspended
  JOIN message ON message.id = suspended.message_id
 WHERE suspended.kind = 'unrouted' AND NOT suspended.reported
 ORDER BY suspended.sequence
 LIMIT %(limit)s;


-- name: report_failures
-- Keep reports about messages that are still unrouted.
WITH reported AS (
    UPDATE suspended
       SET reported = true
     WHERE message_id = ANY (%(message)s::uuid[]) AND kind = 'unrouted' AND NOT reported
    RETURNING message_id
)
INSERT INTO routing_failure (message_id, report)
SELECT message_id, worked_out.report::json
  FROM reported
  JOIN unnest(%(message)s::uuid[], %(report)s::text[]) AS worked_out (message_id, report) USING (message_id)
    ON CONFLICT DO NOTHING;


-- name: lock_unrouted
-- Messages that nobody wanted, to be routed again. Locked: their reference is what keeps them here meanwhile.
SELECT host_id, sequence, message_id
  FROM suspended
 WHERE message_id = ANY(%(message)s) AND kind = 'unrouted'
 ORDER BY sequence
   FOR UPDATE;


-- name: forget_unrouted
-- These found a subscriber: the reference that kept them is replaced, and the report of their failure is void.
WITH routed AS (
    DELETE FROM suspended
     WHERE message_id = ANY(%(message)s) AND kind = 'unrouted'
)
DELETE FROM routing_failure
 WHERE message_id = ANY(%(message)s);


-- name: replace_suspended
-- Take away a suspended reference, since something is published in its place.
WITH replaced AS (
    DELETE FROM suspended
     WHERE host_id = %(host)s AND sequence = %(sequence)s
    RETURNING message_id
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM replaced WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM replaced WHERE (SELECT message FROM reference_log) = 2
)
SELECT message_id FROM replaced;


-- name: add_references
-- More references to messages, in the log that is active: one statement, so that a swap meanwhile is either seen or not.
WITH entry AS (
    SELECT * FROM unnest(%(message)s::uuid[], %(delta)s::integer[]) AS entry (message_id, delta) WHERE delta <> 0
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, delta FROM entry WHERE (SELECT message FROM reference_log) = 1
)
INSERT INTO message_ref_log_2 (message_id, delta)
SELECT message_id, delta FROM entry WHERE (SELECT message FROM reference_log) = 2;
