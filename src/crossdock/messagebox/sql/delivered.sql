-- References delivered per send port since the MessageBox was created; ports that got nothing are listed too.
SELECT service.name,
       (SELECT coalesce(sum(count), 0) FROM delivery WHERE delivery.service_id = service.id)
     + coalesce((SELECT count FROM delivery_total WHERE delivery_total.service_id = service.id), 0)
  FROM service
 ORDER BY service.id;
