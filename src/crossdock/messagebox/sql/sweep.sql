-- The lowest living sequence of each priority.
SELECT ARRAY(SELECT coalesce((SELECT sequence
                                FROM {queue}
                               WHERE host_id = %(host)s AND line = 0 AND priority = level.priority
                                 AND (service_id = ANY (%(services)s::integer[])) = %(only)s
                               ORDER BY sequence
                               LIMIT 1), 9223372036854775807)
               FROM unnest(%(priority)s::smallint[]) AS level (priority));
