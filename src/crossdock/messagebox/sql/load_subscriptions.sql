-- Subscriptions enlisted or changed after an epoch.
SELECT subscription.id, subscription.service_id, service.name, subscription.host_id, service.state,
       subscription.priority, CASE WHEN service.ordered THEN coalesce(service.port_id, service.id) ELSE 0 END, service.two_way, host.labels
  FROM subscription
  JOIN service ON service.id = subscription.service_id
  JOIN host ON host.id = subscription.host_id
 WHERE subscription.epoch > %(epoch)s
 ORDER BY subscription.id;
