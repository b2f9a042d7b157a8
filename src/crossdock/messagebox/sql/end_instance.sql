-- Delete the subscriptions of an instance, one after the other in the order in which publishers lock them.
DELETE FROM instance_subscription
 WHERE id IN (SELECT id
                FROM instance_subscription
               WHERE instance_id = %(instance)s
               ORDER BY id
                 FOR UPDATE);
