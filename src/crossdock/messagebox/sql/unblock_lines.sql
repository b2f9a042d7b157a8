-- A line that a failure stopped goes on when the message that failed is no longer suspended.
UPDATE ordered_line
   SET blocked_until = NULL, reason = NULL, blocked_by = NULL
 WHERE host_id = %(host)s
   AND blocked_by IS NOT NULL
   AND (SELECT true
          FROM {suspended} AS suspended
         WHERE suspended.host_id = %(host)s AND suspended.sequence = ordered_line.blocked_by) IS NULL;
