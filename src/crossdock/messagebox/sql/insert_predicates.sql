-- The predicates of a service's subscription, from how the service declares them.
INSERT INTO predicate (subscription_id, group_number, position, property, type, operator, value, pass)
SELECT subscription.id, 0, 0,
       CASE WHEN service.group_name IS NULL THEN 'BTS.SPTransportID' ELSE 'BTS.SPGroupID' END, 'text', '=',
       ARRAY[coalesce(send_port_group.group_id, service.transport_id)::text], 1
  FROM service
  JOIN subscription ON subscription.service_id = service.id
  LEFT JOIN send_port_group ON send_port_group.name = service.group_name
 WHERE service.id = %(service)s
 UNION ALL
SELECT subscription.id, (entry ->> 0)::smallint, (entry ->> 1)::smallint, entry ->> 2, entry ->> 3, entry ->> 4,
       CASE WHEN json_typeof(entry -> 5) = 'array' THEN ARRAY(SELECT json_array_elements_text(entry -> 5)) END,
       (entry ->> 6)::smallint
  FROM service
  JOIN subscription ON subscription.service_id = service.id
 CROSS JOIN json_array_elements(service.predicate) AS entry
 WHERE service.id = %(service)s;
