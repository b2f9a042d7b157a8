-- Ports that the application no longer names lose their subscription; what was queued for them stays.
WITH unenlisted AS (
    DELETE FROM subscription
     USING service
     WHERE service.id = subscription.service_id
       AND service.application = %(application)s
       AND service.name <> ALL(%(names)s)
    RETURNING subscription.id
)
INSERT INTO subscription_removal (subscription_id, epoch)
SELECT id, %(epoch)s
  FROM unenlisted;
