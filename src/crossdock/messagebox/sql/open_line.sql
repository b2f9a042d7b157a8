-- The lease of a service that is ordered, or was and may have messages in its line, where its host is now.
INSERT INTO ordered_line (service_id, host_id)
SELECT id, host_id
  FROM service
 WHERE id = %(service)s AND port_id IS NULL
   AND (ordered OR EXISTS (SELECT FROM ordered_line WHERE service_id = service.id))
    ON CONFLICT (service_id) DO UPDATE SET host_id = excluded.host_id;
