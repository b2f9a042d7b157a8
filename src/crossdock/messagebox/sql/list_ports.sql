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
