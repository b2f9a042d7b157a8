-- Whether anything of a host is ready or claimed. What waits behind a failed one in an ordered line is not ready. In order,
-- so that the index is used: a plain EXISTS may read the whole table, and all of it may be rows that are gone.
SELECT (SELECT true
          FROM {queue}
         WHERE host_id = %(host)s AND line <= 0
         ORDER BY line, priority, sequence
         LIMIT 1) IS NOT NULL
    OR (SELECT true FROM {claimed} WHERE host_id = %(host)s ORDER BY sequence LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT
                 FROM ordered_line
                WHERE (blocked_until IS NULL OR blocked_until <= %(now)s)
                  AND (SELECT true
                         FROM {queue} AS queue
                        WHERE queue.host_id = %(host)s AND queue.line = ordered_line.service_id AND queue.line > 0
                        ORDER BY queue.sequence
                        LIMIT 1) IS NOT NULL);
