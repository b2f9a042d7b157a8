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
