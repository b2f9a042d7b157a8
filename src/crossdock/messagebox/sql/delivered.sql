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
