-- What the lists and the summary show.


-- name: statistics
-- What the MessageBox holds now, and what has gone through it since it was created.
SELECT (SELECT count(*)
          FROM intake
         WHERE NOT EXISTS (SELECT FROM publication
                            WHERE publication.intake_sequence = intake.sequence AND publication.last))       AS unread,
       queued.ready                                                                     AS ready,
       (SELECT count(*) FROM claimed)                                                   AS claimed,
       (SELECT count(*) FROM scheduled) + queued.blocked + orchestrated.running         AS waiting,
       (SELECT count(*) FROM suspended WHERE kind <> 'unrouted') + orchestrated.suspended AS suspended,
       orchestrated.running + orchestrated.suspended                                    AS instances,
       (SELECT count(*) FROM suspended WHERE kind = 'unrouted')                         AS unrouted,
       (SELECT coalesce(sum(received), 0) FROM publication WHERE NOT counted)
     + (SELECT coalesce(sum(received), 0)::bigint FROM publication_total)                       AS received,
       (SELECT coalesce(sum(published), 0) FROM publication WHERE NOT counted)
     + (SELECT coalesce(sum(published), 0)::bigint FROM publication_total)                      AS published
  FROM (SELECT count(*) FILTER (WHERE NOT blocked) AS ready, count(*) FILTER (WHERE blocked) AS blocked
          FROM (SELECT subqueue > 0 AND EXISTS (SELECT FROM subqueue_lease
                                             WHERE subqueue_lease.service_id = queue.subqueue
                                               AND subqueue_lease.blocked_until > clock()) AS blocked
                  FROM queue) AS reference) AS queued,
       (SELECT count(*) FILTER (WHERE state <> 'suspended') AS running,
               count(*) FILTER (WHERE state = 'suspended')  AS suspended
          FROM instance) AS orchestrated;


-- name: host_statistics
-- What one host holds now.
SELECT queued.ready                                                                     AS ready,
       (SELECT count(*) FROM {claimed})                                                 AS claimed,
       (SELECT count(*) FROM {scheduled}) + queued.blocked
     + (SELECT count(*) FROM {instance} WHERE state <> 'suspended')                     AS waiting,
       (SELECT count(*) FROM {suspended} WHERE kind <> 'unrouted')
     + (SELECT count(*) FROM {instance} WHERE state = 'suspended')                      AS suspended,
       (SELECT count(*) FROM {instance})                                                AS instances,
       (SELECT count(*) FROM {suspended} WHERE kind = 'unrouted')                       AS unrouted
  FROM (SELECT count(*) FILTER (WHERE NOT blocked) AS ready, count(*) FILTER (WHERE blocked) AS blocked
          FROM (SELECT subqueue > 0 AND EXISTS (SELECT FROM subqueue_lease
                                             WHERE subqueue_lease.service_id = queue.subqueue
                                               AND subqueue_lease.blocked_until > clock()) AS blocked
                  FROM {queue} AS queue) AS reference) AS queued;


-- name: delivered
-- References delivered per send port since the MessageBox was created; deployed ports that got nothing are listed too. Summed once
-- for all ports: asking for each of many thousand in turn would read all the counts as often.
SELECT service.name,
       coalesce(recent.count, 0) + coalesce(delivery_total.count, 0)
  FROM service
  LEFT JOIN (SELECT service_id, sum(count) AS count
               FROM delivery
              GROUP BY service_id) AS recent ON recent.service_id = service.id
  LEFT JOIN delivery_total ON delivery_total.service_id = service.id
 WHERE service.class = 'messaging' AND service.deployed OR recent.count > 0 OR delivery_total.count > 0
 ORDER BY service.id;


-- name: list_ports
-- Send ports with their state and what they have done; one that is gone as long as something waits for it. What is queued
-- at an ordered port that is blocked waits, as in the summary. Counted once for all of them: to go through a queue for each
-- of many thousand ports would take hours. A page is by application and name; its place is that of the last port.
SELECT service.name, service.application, host.name AS host,
       CASE WHEN service.deployed THEN service.state ELSE 'unenlisted' END AS state,
       coalesce(done.count, 0)::bigint                                     AS delivered,
       coalesce(there.ready, 0)::bigint                                    AS ready,
       coalesce(there.waiting, 0)::bigint                                  AS waiting,
       coalesce(there.suspended, 0)::bigint                                AS suspended,
       blocked.why                                                         AS blocked
  FROM service
  JOIN host ON host.id = service.host_id
  LEFT JOIN LATERAL (SELECT CASE WHEN lease.blocked_by = 0 THEN 'by what began before the port was ordered'
                                 WHEN lease.blocked_by IS NOT NULL
                                 THEN concat('by suspended message ', (SELECT suspended.message_id
                                                                         FROM suspended
                                                                        WHERE suspended.sequence = lease.blocked_by))
                                 ELSE concat('until ', to_char(lease.blocked_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'),
                                             ': ', lease.reason) END AS why
                       FROM subqueue_lease AS lease
                      WHERE lease.service_id = service.subqueue AND lease.blocked_until > clock()) AS blocked ON true
  LEFT JOIN (SELECT service_id, sum(count) AS count
               FROM (SELECT service_id, count FROM delivery
                      UNION ALL
                     SELECT service_id, count FROM delivery_total) AS counted
              GROUP BY service_id) AS done ON done.service_id = service.id
  LEFT JOIN (SELECT service_id,
                    sum(count) FILTER (WHERE place = 'ready')     AS ready,
                    sum(count) FILTER (WHERE place = 'waiting')   AS waiting,
                    sum(count) FILTER (WHERE place = 'suspended') AS suspended
               FROM (SELECT CASE WHEN lease.service_id IS NULL THEN 'ready' ELSE 'waiting' END AS place, queued.service_id, queued.count
                       FROM (SELECT service_id, subqueue, count(*) FROM queue GROUP BY service_id, subqueue) AS queued
                       LEFT JOIN subqueue_lease AS lease
                         ON lease.service_id = queued.subqueue AND lease.blocked_until > clock()
                      UNION ALL
                     SELECT 'ready', service_id, count(*) FROM claimed GROUP BY service_id
                      UNION ALL
                     SELECT 'waiting', service_id, count(*) FROM scheduled GROUP BY service_id
                      UNION ALL
                     SELECT 'suspended', service_id, count(*) FROM suspended GROUP BY service_id) AS found
              GROUP BY service_id) AS there ON there.service_id = service.id
 WHERE service.class = 'messaging' AND (service.deployed OR there.service_id IS NOT NULL)
   AND (%(after_application)s::text IS NULL
        OR (service.application COLLATE "C", service.name COLLATE "C") > (%(after_application)s::text, %(after)s::text))
 ORDER BY service.application COLLATE "C", CASE WHEN %(limit)s::bigint IS NULL THEN NULL ELSE service.name END COLLATE "C",
          service.id
 LIMIT %(limit)s::bigint;


-- name: list_waiting
-- What waits for its next attempt, the first that is due before the others; and of each ordered port that is blocked the
-- delivery that is to be tried first.
SELECT waiting.*
  FROM (SELECT scheduled.message_id AS id, service.name AS port, host.name AS host, scheduled.attempt + 1 AS attempt,
               scheduled.due_at, NULL::uuid AS blocked_by, 0::bigint AS behind, scheduled.reason
          FROM scheduled
          JOIN service ON service.id = scheduled.service_id
          JOIN host ON host.id = scheduled.host_id
         WHERE %(port)s::text IS NULL OR service.name = %(port)s::text
         UNION ALL
        SELECT first.message_id, service.name, host.name, coalesce(first.attempt, 0) + 1,
               CASE WHEN lease.blocked_by IS NULL THEN lease.blocked_until END,
               (SELECT suspended.message_id FROM suspended WHERE suspended.sequence = lease.blocked_by),
               greatest((SELECT count(*)
                           FROM queue
                          WHERE queue.host_id = lease.host_id AND queue.subqueue = lease.service_id) - 1, 0),
               CASE WHEN lease.blocked_by = 0 THEN 'What began before the port was ordered has to end first.'
                    ELSE lease.reason END
          FROM subqueue_lease AS lease
          JOIN service ON service.id = lease.service_id
          JOIN host ON host.id = lease.host_id
          LEFT JOIN LATERAL (SELECT queue.message_id, queue.attempt
                               FROM queue
                              WHERE queue.host_id = lease.host_id AND queue.subqueue = lease.service_id
                              ORDER BY queue.sequence
                              LIMIT 1) AS first ON true
         WHERE lease.blocked_until > clock() AND (%(port)s::text IS NULL OR service.name = %(port)s::text)) AS waiting
 ORDER BY waiting.due_at NULLS FIRST, waiting.id
 LIMIT %(limit)s;


-- name: list_orchestrations
-- Orchestrations with their state and their living instances, counted once for all of them; one that is gone as long as it
-- has instances or something waits for it.
SELECT service.name, service.application, host.name AS host,
       CASE WHEN service.deployed THEN service.state ELSE 'unenlisted' END AS state,
       coalesce(service.version, '')                                       AS version,
       coalesce(living.running, 0)                                         AS running,
       coalesce(living.suspended, 0)                                       AS suspended
  FROM service
  JOIN host ON host.id = service.host_id
  LEFT JOIN (SELECT service_id,
                    count(*) FILTER (WHERE state <> 'suspended') AS running,
                    count(*) FILTER (WHERE state = 'suspended')  AS suspended
               FROM instance
              GROUP BY service_id) AS living ON living.service_id = service.id
 WHERE service.class = 'orchestration'
   AND (service.deployed OR living.service_id IS NOT NULL
        OR EXISTS (SELECT FROM queue WHERE queue.service_id = service.id)
        OR EXISTS (SELECT FROM suspended WHERE suspended.service_id = service.id))
 ORDER BY service.application, service.id;


-- name: list_groups
-- Groups of send ports with their state and their members.
SELECT send_port_group.name, send_port_group.application,
       send_port_group.state,
       ARRAY(SELECT port.name
               FROM service AS member
               JOIN service AS port ON port.id = member.port_id
              WHERE member.group_name = send_port_group.name AND member.deployed
              ORDER BY port.name) AS ports
  FROM send_port_group
 WHERE send_port_group.deployed
 ORDER BY send_port_group.application, send_port_group.name;


-- name: list_locations
-- Receive locations with what came in through them, and what cannot be read there now; one that is gone as long as sources
-- of it are in the ledger.
SELECT receive_location.name, receive_location.application, host.name AS host, receive_location.enabled,
       coalesce(sum(done.received), 0)::bigint  AS received,
       coalesce(sum(done.published), 0)::bigint AS published,
       coalesce(sum(done.unrouted), 0)::bigint  AS unrouted,
       coalesce(sum(done.suspended), 0)::bigint AS suspended,
       coalesce(waiting.postponed, 0)           AS postponed,
       waiting.reason
  FROM receive_location
  JOIN host ON host.id = receive_location.host_id
  LEFT JOIN (SELECT location_id, received, published, unrouted, suspended FROM publication WHERE NOT counted
             UNION ALL
             SELECT location_id, received, published, unrouted, suspended FROM publication_total) AS done
    ON done.location_id = receive_location.id
  LEFT JOIN (SELECT location_id, count(*) AS postponed, (array_agg(reason ORDER BY due_at DESC))[1] AS reason
               FROM intake
              WHERE claimed_by = 0 AND failures > 0
              GROUP BY location_id) AS waiting
    ON waiting.location_id = receive_location.id
 WHERE (receive_location.deployed OR EXISTS (SELECT FROM intake WHERE intake.location_id = receive_location.id))
   AND (%(after_application)s::text IS NULL
        OR (receive_location.application COLLATE "C", receive_location.name COLLATE "C")
         > (%(after_application)s::text, %(after)s::text))
 GROUP BY receive_location.id, host.name, waiting.postponed, waiting.reason
 ORDER BY receive_location.application COLLATE "C",
          CASE WHEN %(limit)s::bigint IS NULL THEN NULL ELSE receive_location.name END COLLATE "C", receive_location.id
 LIMIT %(limit)s::bigint;


-- name: list_subscriptions
-- Every subscription: those of enlisted services, then those of running instances. A page goes through the keys: there may
-- be a hundred thousand instances.
(SELECT service.name, host.name AS host, 'activation' AS kind, service.state, subscription.priority,
       subscription.id, NULL::uuid AS instance, NULL::text AS waits_for
  FROM subscription
  JOIN service ON service.id = subscription.service_id
  JOIN host ON host.id = subscription.host_id
 WHERE %(after_kind)s::text IS NULL OR (%(after_kind)s::text = 'activation' AND subscription.id > %(after)s::bigint)
 ORDER BY subscription.id
 LIMIT %(limit)s::bigint)
 UNION ALL
(SELECT service.name, host.name, 'instance', 'started', instance_subscription.priority, instance_subscription.id,
       instance_subscription.instance_id,
       (SELECT string_agg(property || ' = ' || quote_literal(value), ' AND ')
          FROM unnest(correlation.property, shown_waiting.value) AS pair (property, value))
  FROM instance_subscription
  JOIN shown_waiting ON shown_waiting.id = instance_subscription.id
  JOIN service ON service.id = instance_subscription.service_id
  JOIN host ON host.id = instance_subscription.host_id
  JOIN correlation ON correlation.id = instance_subscription.correlation_id
 WHERE %(after_kind)s::text IS DISTINCT FROM 'instance' OR instance_subscription.id > %(after)s::bigint
 ORDER BY instance_subscription.id
 LIMIT %(limit)s::bigint)
 ORDER BY kind, id
 LIMIT %(limit)s::bigint;


-- name: list_delivered
-- References delivered per service of one host, as far as its role may ask.
SELECT name, count FROM delivery_count WHERE host_id = %(host)s;
