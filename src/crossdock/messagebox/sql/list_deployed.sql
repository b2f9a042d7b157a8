-- What is deployed under these names, in the form a deployment would store it, so that only what differs is touched.
SELECT service.name, host.name, service.priority, service.ordered, service.two_way, service.definition, service.predicate
  FROM service
  JOIN host ON host.id = service.host_id
 WHERE service.name = ANY(%(names)s) AND service.deployed;
