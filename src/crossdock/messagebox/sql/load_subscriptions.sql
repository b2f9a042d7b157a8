-- Subscriptions enlisted or changed after an epoch.
SELECT subscription.id, subscription.service_id, service.name, subscription.host_id, service.state,
       subscription.priority, CASE WHEN service.ordered THEN coalesce(service.port_id, service.id) ELSE 0 END, service.two_way, host.labels,
       coalesce(send_port_group.group_id, service.transport_id)::text
  FROM subscription
  JOIN service ON service.id = subscription.service_id
  JOIN host ON host.id = subscription.host_id
  LEFT JOIN send_port_group ON send_port_group.name = service.group_name
 WHERE subscription.epoch > %(epoch)s
 ORDER BY subscription.id;
