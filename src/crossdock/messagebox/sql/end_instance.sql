-- Delete the subscriptions of instances, one after the other in the order in which publishers lock them.
DELETE FROM instance_subscription
 WHERE id = ANY (ARRAY (SELECT id
                          FROM instance_subscription
                         WHERE instance_id = ANY(%(instance)s)
                         ORDER BY id + 0
                           FOR UPDATE));
