-- Whether summing could free anything. In logs where nothing was taken away it could not: what they hold would be moved to
-- the totals and back, and what is taken away later finds it in the log just as well. A total below zero waits for what is
-- in a log. So many rows are summed in any case.
SELECT EXISTS (SELECT FROM {log} WHERE delta < 0)
    OR EXISTS (SELECT FROM {other} WHERE delta < 0)
    OR EXISTS (SELECT FROM {total} WHERE total <= 0)
    OR EXISTS (SELECT FROM {log} OFFSET %(rows)s)
    OR EXISTS (SELECT FROM {other} OFFSET %(rows)s);
