-- Append reference deltas to the log that is active: one statement, so that a swap meanwhile is either seen or not.
WITH entry AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(deltas)s::integer[])
), log_1 AS (
    INSERT INTO {log} ({id}, delta)
    SELECT * FROM entry WHERE (SELECT {kind} FROM reference_log) = 1
)
INSERT INTO {other} ({id}, delta)
SELECT * FROM entry WHERE (SELECT {kind} FROM reference_log) = 2;
