-- Send ports with their state and what they have done.
SELECT service.name, service.application, host.name AS host,
       CASE WHEN service.deployed THEN service.state ELSE 'unenlisted' END                    AS state,
       (SELECT coalesce(sum(count), 0) FROM delivery WHERE delivery.service_id = service.id)
     + coalesce((SELECT count FROM delivery_total WHERE delivery_total.service_id = service.id), 0) AS delivered,
       (SELECT count(*) FROM queue WHERE queue.service_id = service.id)
     + (SELECT count(*) FROM claimed WHERE claimed.service_id = service.id)                   AS ready,
       (SELECT count(*) FROM scheduled WHERE scheduled.service_id = service.id)               AS waiting,
       (SELECT count(*) FROM suspended WHERE suspended.service_id = service.id)               AS suspended
  FROM service
  JOIN host ON host.id = service.host_id
 WHERE service.class <> 'messaging isolated'
 ORDER BY service.application, service.id;
