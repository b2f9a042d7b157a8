-- How much the MessageBox holds, and since when.
SELECT (SELECT count(*) FROM message)                                               AS messages,
       (SELECT coalesce(sum(size), 0)::bigint FROM part)                            AS bytes,
       (SELECT min(created_at) FROM message)                                        AS oldest,
       pg_database_size(current_database())                                         AS database_bytes;
