-- Whether anything of a host was put aside for this reason, and is due by then. In order, so that the index is used: a plain
-- EXISTS may read the whole table, and all of it may be retries that are due much later.
SELECT (SELECT true
          FROM {scheduled}
         WHERE host_id = %(host)s AND due_at <= %(until)s AND reason = %(reason)s
         ORDER BY host_id, due_at
         LIMIT 1) IS NOT NULL;
