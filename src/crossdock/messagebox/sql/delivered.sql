-- References delivered per send port since the given mark; ports that got nothing are listed too.
SELECT service.name,
       (SELECT coalesce(sum(count), 0)
          FROM delivery
         WHERE delivery.service_id = service.id AND delivery.number > %(delivery)s)
  FROM service
 ORDER BY service.id;
