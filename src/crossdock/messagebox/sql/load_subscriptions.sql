-- Every subscription with its predicates, in the order of the filter.
SELECT subscription.id, subscription.service_id, subscription.host_id, subscription.state, subscription.priority,
       service.name, predicate.group_number, predicate.property, predicate.type, predicate.operator, predicate.value
  FROM subscription
  JOIN service ON service.id = subscription.service_id
  LEFT JOIN predicate ON predicate.subscription_id = subscription.id
 ORDER BY subscription.id, predicate.group_number, predicate.position;
