-- The lowest living sequence of each priority, and what is needed to know how far that can be relied on: the number of
-- this transaction, which is above that of every one that has drawn a sequence number so far, and the lowest number still
-- running.
SELECT pg_current_xact_id()::text, pg_snapshot_xmin(pg_current_snapshot())::text,
       ARRAY(SELECT coalesce((SELECT sequence
                                FROM {queue}
                               WHERE host_id = %(host)s AND line = 0 AND priority = level.priority
                               ORDER BY sequence
                               LIMIT 1), 9223372036854775807)
               FROM unnest(%(priority)s::smallint[]) AS level (priority));
