-- What is enlisted under these names, in the form a deployment would store it, so that only what differs is touched.
SELECT service.name, host.name, subscription.priority, service.definition,
       coalesce((SELECT json_agg(json_build_array(group_number, position, property, type, operator, value, pass)
                                 ORDER BY group_number, position)
                   FROM predicate
                  WHERE predicate.subscription_id = subscription.id), '[]')
  FROM service
  JOIN subscription ON subscription.service_id = service.id
  JOIN host ON host.id = subscription.host_id
 WHERE service.name = ANY(%(names)s);
