-- Take the subscription of services away, and leave word for routers that know it. What was queued stays.
WITH unenlisted AS (
    DELETE FROM subscription
     WHERE service_id = ANY(%(service)s)
    RETURNING id
)
INSERT INTO subscription_removal (subscription_id, epoch)
SELECT id, %(epoch)s
  FROM unenlisted;
