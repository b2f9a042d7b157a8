-- Receive locations with what came in through them.
SELECT receive_location.name, receive_location.application, host.name AS host, receive_location.enabled,
       coalesce(sum(done.received), 0)::bigint  AS received,
       coalesce(sum(done.published), 0)::bigint AS published,
       coalesce(sum(done.unrouted), 0)::bigint  AS unrouted,
       coalesce(sum(done.suspended), 0)::bigint AS suspended
  FROM receive_location
  JOIN host ON host.id = receive_location.host_id
  LEFT JOIN (SELECT location_id, received, published, unrouted, suspended FROM publication
             UNION ALL
             SELECT location_id, received, published, unrouted, suspended FROM publication_total) AS done
    ON done.location_id = receive_location.id
 GROUP BY receive_location.id, host.name
 ORDER BY receive_location.application, receive_location.id;
