-- Predicate rows of subscriptions enlisted or changed after an epoch, one row per constant: what the index is built from.
-- Group 0 is the transport id, the others are the filter's.
SELECT predicate.subscription_id, predicate.group_number, predicate.position, predicate.property, predicate.operator,
       constant.value
  FROM subscription
  JOIN predicate ON predicate.subscription_id = subscription.id
  LEFT JOIN LATERAL unnest(predicate.value) AS constant (value) ON true
 WHERE subscription.epoch > %(epoch)s AND predicate.group_number >= %(first_group)s
 ORDER BY predicate.subscription_id, predicate.group_number, predicate.position;
