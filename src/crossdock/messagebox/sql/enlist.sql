-- Give a service its one subscription: its transport id as a group, or the groups of its filter. One that it has already
-- keeps its id and gets new predicates.
WITH known AS (
    UPDATE subscription
       SET host_id = service.host_id, priority = service.priority, epoch = %(epoch)s
      FROM service
     WHERE service.id = %(service)s AND subscription.service_id = service.id
    RETURNING subscription.id
), fresh AS (
    INSERT INTO subscription (service_id, host_id, priority, epoch)
    SELECT id, host_id, priority, %(epoch)s
      FROM service
     WHERE id = %(service)s AND NOT EXISTS (SELECT FROM known)
    RETURNING id
), made AS (
    SELECT id FROM known UNION ALL SELECT id FROM fresh
), before AS (
    DELETE FROM predicate
     USING known
     WHERE predicate.subscription_id = known.id
)
SELECT id FROM made;
