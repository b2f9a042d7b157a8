-- Take the lease of one ordered service that has work, is not blocked and that nobody holds; none of those that this
-- instance has not heard it has given up. Whoever was held least recently is the first: each line gets its turn.
UPDATE ordered_line
   SET held_by = %(instance)s, held_at = %(now)s, blocked_until = NULL, reason = NULL
 WHERE service_id = (SELECT service_id
                       FROM ordered_line
                      WHERE host_id = %(host)s
                        AND held_by IS NULL
                        AND service_id <> ALL (%(but)s::integer[])
                        AND (blocked_until IS NULL OR blocked_until <= %(now)s)
                        AND EXISTS (SELECT
                                      FROM {queue} AS queue
                                     WHERE queue.host_id = %(host)s AND queue.line = ordered_line.service_id)
                      ORDER BY held_at, service_id
                      LIMIT 1
                        FOR UPDATE SKIP LOCKED)
RETURNING service_id;
