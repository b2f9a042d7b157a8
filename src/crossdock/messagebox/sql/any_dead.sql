-- Whether an instance of the host is gone, or held a line and is gone since longer. References that an instance claimed
-- after it was taken for dead are not looked for here: that takes a look at all that is claimed.
SELECT EXISTS (SELECT
                 FROM host_instance
                WHERE host_id = %(host)s
                  AND now() > pg_postmaster_start_time() + %(grace)s
                  AND pg_try_advisory_xact_lock(%(lock)s, id))
    OR EXISTS (SELECT
                 FROM ordered_line
                WHERE host_id = %(host)s AND held_by IS NOT NULL AND held_by NOT IN (SELECT id FROM host_instance));
