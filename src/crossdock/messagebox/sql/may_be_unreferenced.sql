-- Whether summing could free anything. A total below zero waits for what is in a log.
SELECT EXISTS (SELECT FROM {log})
    OR EXISTS (SELECT FROM {other})
    OR EXISTS (SELECT FROM {total} WHERE living <= 0);
