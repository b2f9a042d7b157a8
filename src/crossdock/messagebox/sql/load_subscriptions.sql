-- Subscriptions enlisted or changed after an epoch.
SELECT subscription.id, subscription.service_id, service.name, subscription.host_id, subscription.state,
       subscription.priority
  FROM subscription
  JOIN service ON service.id = subscription.service_id
 WHERE subscription.epoch > %(epoch)s
 ORDER BY subscription.id;
