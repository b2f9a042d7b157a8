-- Ports that the application no longer names lose their subscription; what was queued for them stays.
DELETE FROM subscription
 USING service
 WHERE service.id = subscription.service_id
   AND service.application = %(application)s
   AND service.name <> ALL(%(names)s);
