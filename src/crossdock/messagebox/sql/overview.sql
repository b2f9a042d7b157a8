-- What the lists and the summary show.


-- name: statistics
-- What the MessageBox holds now, and what has gone through it since it was created.
SELECT (SELECT count(*)
          FROM intake
         WHERE NOT EXISTS (SELECT FROM publication
                            WHERE publication.intake_sequence = intake.sequence AND publication.last))       AS unread,
       queued.ready                                                                     AS ready,
       (SELECT count(*) FROM claimed)                                                   AS claimed,
       (SELECT count(*) FROM scheduled) + queued.blocked                                AS waiting,
       (SELECT count(*) FROM suspended WHERE kind <> 'unrouted')                        AS suspended,
       (SELECT count(*) FROM suspended WHERE kind = 'unrouted')                         AS unrouted,
       (SELECT coalesce(sum(received), 0) FROM publication)
     + (SELECT coalesce(sum(received), 0)::bigint FROM publication_total)                       AS received,
       (SELECT coalesce(sum(published), 0) FROM publication)
     + (SELECT coalesce(sum(published), 0)::bigint FROM publication_total)                      AS published
  FROM (SELECT count(*) FILTER (WHERE NOT blocked) AS ready, count(*) FILTER (WHERE blocked) AS blocked
          FROM (SELECT subqueue > 0 AND EXISTS (SELECT FROM subqueue_lease
                                             WHERE subqueue_lease.service_id = queue.subqueue
                                               AND subqueue_lease.blocked_until > clock()) AS blocked
                  FROM queue) AS reference) AS queued;


-- name: host_statistics
-- What one host holds now.
SELECT queued.ready                                                                     AS ready,
       (SELECT count(*) FROM {claimed})                                                 AS claimed,
       (SELECT count(*) FROM {scheduled}) + queued.blocked                              AS waiting,
       (SELECT count(*) FROM {suspended} WHERE kind <> 'unrouted')                      AS suspended,
       (SELECT count(*) FROM {suspended} WHERE kind = 'unrouted')                       AS unrouted
  FROM (SELECT count(*) FILTER (WHERE NOT blocked) AS ready, count(*) FILTER (WHERE blocked) AS blocked
          FROM (SELECT subqueue > 0 AND EXISTS (SELECT FROM subqueue_lease
                                             WHERE subqueue_lease.service_id = queue.subqueue
                                               AND subqueue_lease.blocked_until > clock()) AS blocked
                  FROM {queue} AS queue) AS reference) AS queued;


-- name: delivered
-- References delivered per send port since the MessageBox was created; ports that got nothing are listed too. Summed once
-- for all ports: asking for each of many thousand in turn would read all the counts as often.
SELECT service.name,
       coalesce(recent.count, 0) + coalesce(delivery_total.count, 0)
  FROM service
  LEFT JOIN (SELECT service_id, sum(count) AS count
               FROM delivery
              GROUP BY service_id) AS recent ON recent.service_id = service.id
  LEFT JOIN delivery_total ON delivery_total.service_id = service.id
 WHERE service.class <> 'messaging isolated' OR recent.count > 0 OR delivery_total.count > 0
 ORDER BY service.id;


-- name: list_ports
-- Send ports with their state and what they have done. Counted once for all of them: to go through a queue for each of
-- many thousand ports would take hours.
SELECT service.name, service.application, host.name AS host,
       CASE WHEN service.deployed THEN service.state ELSE 'unenlisted' END AS state,
       coalesce(done.count, 0)::bigint                                     AS delivered,
       coalesce(there.ready, 0)::bigint                                    AS ready,
       coalesce(there.waiting, 0)::bigint                                  AS waiting,
       coalesce(there.suspended, 0)::bigint                                AS suspended
  FROM service
  JOIN host ON host.id = service.host_id
  LEFT JOIN (SELECT service_id, sum(count) AS count
               FROM (SELECT service_id, count FROM delivery
                      UNION ALL
                     SELECT service_id, count FROM delivery_total) AS counted
              GROUP BY service_id) AS done ON done.service_id = service.id
  LEFT JOIN (SELECT service_id,
                    sum(count) FILTER (WHERE place = 'ready')     AS ready,
                    sum(count) FILTER (WHERE place = 'waiting')   AS waiting,
                    sum(count) FILTER (WHERE place = 'suspended') AS suspended
               FROM (SELECT 'ready' AS place, service_id, count(*) FROM queue GROUP BY service_id
                      UNION ALL
                     SELECT 'ready', service_id, count(*) FROM claimed GROUP BY service_id
                      UNION ALL
                     SELECT 'waiting', service_id, count(*) FROM scheduled GROUP BY service_id
                      UNION ALL
                     SELECT 'suspended', service_id, count(*) FROM suspended GROUP BY service_id) AS found
              GROUP BY service_id) AS there ON there.service_id = service.id
 WHERE service.class <> 'messaging isolated'
 ORDER BY service.application, service.id;


-- name: list_groups
-- Groups of send ports with their state and their members.
SELECT send_port_group.name, send_port_group.application,
       CASE WHEN send_port_group.deployed THEN send_port_group.state ELSE 'unenlisted' END AS state,
       ARRAY(SELECT port.name
               FROM service AS member
               JOIN service AS port ON port.id = member.port_id
              WHERE member.group_name = send_port_group.name AND member.deployed
              ORDER BY port.name) AS ports
  FROM send_port_group
 ORDER BY send_port_group.application, send_port_group.name;


-- name: list_locations
-- Receive locations with what came in through them, and what cannot be read there now.
SELECT receive_location.name, receive_location.application, host.name AS host, receive_location.enabled,
       coalesce(sum(done.received), 0)::bigint  AS received,
       coalesce(sum(done.published), 0)::bigint AS published,
       coalesce(sum(done.unrouted), 0)::bigint  AS unrouted,
       coalesce(sum(done.suspended), 0)::bigint AS suspended,
       coalesce(waiting.postponed, 0)           AS postponed,
       waiting.reason
  FROM receive_location
  JOIN host ON host.id = receive_location.host_id
  LEFT JOIN (SELECT location_id, received, published, unrouted, suspended FROM publication
             UNION ALL
             SELECT location_id, received, published, unrouted, suspended FROM publication_total) AS done
    ON done.location_id = receive_location.id
  LEFT JOIN (SELECT location_id, count(*) AS postponed, (array_agg(reason ORDER BY due_at DESC))[1] AS reason
               FROM intake
              WHERE claimed_by = 0 AND failures > 0
              GROUP BY location_id) AS waiting
    ON waiting.location_id = receive_location.id
 GROUP BY receive_location.id, host.name, waiting.postponed, waiting.reason
 ORDER BY receive_location.application, receive_location.id;


-- name: list_subscriptions
-- Every subscription: those of enlisted services, and those of running instances.
SELECT service.name, host.name AS host, 'activation' AS kind, service.state, subscription.priority,
       subscription.id, NULL::uuid AS instance, NULL::text AS waits_for
  FROM subscription
  JOIN service ON service.id = subscription.service_id
  JOIN host ON host.id = subscription.host_id
 UNION ALL
SELECT service.name, host.name, 'instance', 'started', instance_subscription.priority, instance_subscription.id,
       instance_subscription.instance_id,
       (SELECT string_agg(property || ' = ' || quote_literal(value), ' AND ')
          FROM unnest(correlation.property, instance_subscription.value) AS pair (property, value))
  FROM instance_subscription
  JOIN service ON service.id = instance_subscription.service_id
  JOIN host ON host.id = instance_subscription.host_id
  JOIN correlation ON correlation.id = instance_subscription.correlation_id
 ORDER BY kind, id;


-- name: list_delivered
-- References delivered per service of one host, as far as its role may ask.
SELECT name, count FROM delivery_count WHERE host_id = %(host)s;
