-- What the MessageBox holds now, and what went through it since the given marks.
SELECT (SELECT count(*)
          FROM intake
         WHERE NOT EXISTS (SELECT FROM publication
                            WHERE publication.intake_sequence = intake.sequence))       AS unread,
       (SELECT count(*) FROM queue)                                                     AS ready,
       (SELECT count(*) FROM claimed)                                                   AS claimed,
       (SELECT count(*) FROM scheduled)                                                 AS waiting,
       (SELECT count(*) FROM suspended WHERE kind <> 'unrouted')                        AS suspended,
       (SELECT count(*) FROM suspended WHERE kind = 'unrouted')                         AS unrouted,
       (SELECT coalesce(sum(received), 0) FROM publication WHERE number > %(publication)s)  AS received,
       (SELECT coalesce(sum(published), 0) FROM publication WHERE number > %(publication)s) AS published,
       (SELECT coalesce(max(number), 0) FROM publication)                               AS last_publication,
       (SELECT coalesce(max(number), 0) FROM delivery)                                  AS last_delivery;
