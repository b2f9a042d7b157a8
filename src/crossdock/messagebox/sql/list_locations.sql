-- Receive locations with what came in through them.
SELECT receive_location.name, receive_location.application, host.name AS host, receive_location.enabled,
       coalesce(sum(publication.received), 0)  AS received,
       coalesce(sum(publication.published), 0) AS published,
       coalesce(sum(publication.unrouted), 0)  AS unrouted,
       coalesce(sum(publication.suspended), 0) AS suspended
  FROM receive_location
  JOIN host ON host.id = receive_location.host_id
  LEFT JOIN publication ON publication.location_id = receive_location.id
 GROUP BY receive_location.id, host.name
 ORDER BY receive_location.application, receive_location.id;
