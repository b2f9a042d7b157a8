-- What pages of people show: lists by page, and figures at a cost that does not grow with what is in the MessageBox.


-- name: page_ports
-- Send ports and orchestrations by name, without counting what waits for them: samples say that.
SELECT service.name, service.application, host.name AS host, service.class AS class_, service.state, service.ordered,
       service.two_way, service.definition::text AS definition, service.predicate::text AS predicate
  FROM service
  JOIN host ON host.id = service.host_id
 WHERE service.deployed AND service.group_name IS NULL AND service.class IN ('messaging', 'orchestration')
   AND service.name > %(after)s
   AND (%(application)s::text IS NULL OR service.application = %(application)s::text)
   AND (%(state)s::text IS NULL OR service.state = %(state)s::text)
   AND (%(search)s::text IS NULL OR position(lower(%(search)s::text) IN lower(service.name)) > 0)
 ORDER BY service.name
 LIMIT %(limit)s;


-- name: find_services
-- The same of services of these names.
SELECT service.name, service.application, host.name AS host, service.class AS class_, service.state, service.ordered,
       service.two_way, service.definition::text AS definition, service.predicate::text AS predicate
  FROM service
  JOIN host ON host.id = service.host_id
 WHERE service.deployed AND service.name = ANY (%(name)s)
 ORDER BY service.name;


-- name: page_locations
-- Receive locations by name, likewise.
SELECT receive_location.name, receive_location.application, host.name AS host, receive_location.enabled,
       receive_location.definition::text AS definition
  FROM receive_location
  JOIN host ON host.id = receive_location.host_id
 WHERE receive_location.deployed AND receive_location.name > %(after)s
   AND (%(application)s::text IS NULL OR receive_location.application = %(application)s::text)
   AND (%(search)s::text IS NULL OR position(lower(%(search)s::text) IN lower(receive_location.name)) > 0)
 ORDER BY receive_location.name
 LIMIT %(limit)s;


-- name: page_instances
-- Running instances, the oldest first. A page is found in each host by its key, and only its rows are joined.
SELECT page.id, page.host_id, service.name AS orchestration, service.application, host.name AS host, page.version,
       page.step, page.state, page.since, page.activated_at, left(page.waiting_for, 4000) AS waiting_for,
       left(page.line, 4000) AS line, page.code, left(page.reason, 4000) AS reason, left(page.traceback, 4000) AS traceback,
       page.activation, message.context::text AS context,
       (SELECT json_agg(json_build_array(found.name, found.property, found.value) ORDER BY found.id)
          FROM (SELECT waiting.id, correlation.name, correlation.property, waiting.value
                  FROM shown_waiting AS waiting
                  JOIN correlation ON correlation.id = waiting.correlation_id
                 WHERE waiting.instance_id = page.id AND waiting.host_id = page.host_id AND correlation.name IS NOT NULL
                 ORDER BY waiting.id
                 LIMIT 100) AS found)
       AS correlated
  FROM (SELECT each.*
          FROM host AS living
         CROSS JOIN LATERAL (SELECT *
                               FROM instance
                              WHERE instance.host_id = living.id
                                AND (%(after)s::uuid IS NULL OR instance.id > %(after)s::uuid)
                                AND (%(state)s::text IS NULL OR instance.state = %(state)s::text)
                                AND (%(orchestration)s::text IS NULL
                                     OR instance.service_id = ANY (ARRAY(SELECT id FROM service
                                                                          WHERE name = %(orchestration)s::text)))
                              ORDER BY instance.id
                              LIMIT %(limit)s) AS each
         ORDER BY each.id
         LIMIT %(limit)s) AS page
  JOIN service ON service.id = page.service_id
  JOIN host ON host.id = page.host_id
  LEFT JOIN LATERAL (SELECT context FROM shown_message WHERE id = page.activation LIMIT 1) AS message ON true
 ORDER BY page.id;


-- name: trend_suspended
-- The newest suspended references by code, port and how long ago, in steps. At most so many are looked at.
SELECT looked.code, service.name AS port, looked.step, count(*) AS count, min(looked.suspended_at) AS first,
       max(looked.suspended_at) AS last, (array_agg(looked.message_id))[1] AS sample
  FROM (SELECT code, service_id, message_id, suspended_at,
               greatest(least(floor(extract(epoch FROM clock() - suspended_at) / extract(epoch FROM %(step)s::interval)),
                              %(steps)s), 0)::integer AS step
          FROM suspended
         WHERE suspended_at BETWEEN '0001-01-02Z' AND '9999-12-30Z'
         ORDER BY sequence DESC
         LIMIT %(limit)s) AS looked
  LEFT JOIN service ON service.id = looked.service_id
 GROUP BY looked.code, service.name, looked.step;


-- name: total_minutes
-- What went through the whole MessageBox, in steps of minutes; a step in which nothing happened is missing.
SELECT step.at, sum(step.received)::bigint, sum(step.delivered)::bigint, sum(step.failed)::bigint
  FROM (SELECT date_bin(%(step)s::interval, minute, '2000-01-01Z') AS at, received, 0 AS delivered, unrouted + suspended AS failed
          FROM publication_minute
         WHERE minute > clock() - %(within)s::interval
         UNION ALL
        SELECT date_bin(%(step)s::interval, minute, '2000-01-01Z'), 0, delivered, suspended
          FROM delivery_minute
         WHERE minute > clock() - %(within)s::interval) AS step
 GROUP BY step.at
 ORDER BY step.at;


-- name: list_living_hosts
-- Hosts with their living instances, as `list_hosts` tells them, without counting what they have to do.
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
                          AND granted)) AS instances
  FROM host
 ORDER BY host.id;
