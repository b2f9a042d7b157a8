-- Give up the lease of an ordered service; blocked, if its first message has to wait.
UPDATE ordered_line
   SET held_by = NULL, blocked_until = %(blocked_until)s, reason = %(reason)s, blocked_by = %(blocked_by)s
 WHERE service_id = %(service)s AND held_by = %(instance)s;
