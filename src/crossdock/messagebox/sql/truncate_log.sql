-- Empty the log at once, also of rows that an open reader would keep from being cleaned away.
TRUNCATE {log};
