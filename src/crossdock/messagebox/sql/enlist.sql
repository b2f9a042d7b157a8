-- A send port and its one subscription: made on the first deployment, brought up to date on the next.
WITH port AS (
    INSERT INTO service (name, application, host_id, definition)
    VALUES (%(name)s, %(application)s, create_host(%(host)s), %(definition)s)
        ON CONFLICT (name) DO UPDATE SET host_id = excluded.host_id, definition = excluded.definition
    RETURNING id, host_id
), known AS (
    UPDATE subscription
       SET host_id = port.host_id, priority = %(priority)s, epoch = %(epoch)s
      FROM port
     WHERE subscription.service_id = port.id
    RETURNING subscription.id
), fresh AS (
    INSERT INTO subscription (service_id, host_id, priority, epoch)
    SELECT id, host_id, %(priority)s, %(epoch)s
      FROM port
     WHERE NOT EXISTS (SELECT FROM known)
    RETURNING id
)
SELECT id FROM known UNION ALL SELECT id FROM fresh;
