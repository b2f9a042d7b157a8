-- What the MessageBox holds now, and what has gone through it since it was created.
SELECT (SELECT count(*)
          FROM intake
         WHERE NOT EXISTS (SELECT FROM publication
                            WHERE publication.intake_sequence = intake.sequence AND publication.last))       AS unread,
       queued.ready                                                                     AS ready,
       (SELECT count(*) FROM claimed)                                                   AS claimed,
       (SELECT count(*) FROM scheduled) + queued.blocked                                AS waiting,
       (SELECT count(*) FROM suspended WHERE kind <> 'unrouted')                        AS suspended,
       (SELECT count(*) FROM suspended WHERE kind = 'unrouted')                         AS unrouted,
       (SELECT coalesce(sum(received), 0) FROM publication)
     + (SELECT coalesce(sum(received), 0)::bigint FROM publication_total)                       AS received,
       (SELECT coalesce(sum(published), 0) FROM publication)
     + (SELECT coalesce(sum(published), 0)::bigint FROM publication_total)                      AS published
  FROM (SELECT count(*) FILTER (WHERE NOT blocked) AS ready, count(*) FILTER (WHERE blocked) AS blocked
          FROM (SELECT line > 0 AND EXISTS (SELECT FROM ordered_line
                                             WHERE ordered_line.service_id = queue.line
                                               AND ordered_line.blocked_until > %(now)s) AS blocked
                  FROM queue) AS reference) AS queued;
