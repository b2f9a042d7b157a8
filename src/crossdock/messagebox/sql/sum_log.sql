-- Add a closed log into the totals. What had its first and its last change within it leaves no total: it is unreferenced,
-- unless the other log still has a row of it. With both logs and the totals in one snapshot the count is exact. What a
-- message was given is looked up one by one, by the index, and once: from then on there is a total.
WITH closed AS (
    SELECT id, sum(delta) AS delta, bool_or(elsewhere) AS elsewhere
      FROM (SELECT {id} AS id, delta, false AS elsewhere FROM {log}
             UNION ALL
            SELECT {id}, 0, true FROM {other}) AS entry
     GROUP BY id
    HAVING NOT bool_and(elsewhere)
), summed AS MATERIALIZED (
    SELECT closed.id,
           closed.delta + CASE WHEN known.{id} IS NULL
                               THEN coalesce((SELECT given FROM {kind} WHERE id = closed.id), 0)
                               ELSE known.living END AS living,
           known.{id} IS NOT NULL OR closed.elsewhere AS known
      FROM closed
      LEFT JOIN {total} AS known ON known.{id} = closed.id
), kept AS (
    INSERT INTO {total} AS known ({id}, living)
    SELECT id, living
      FROM summed
     WHERE living <> 0 OR known
        ON CONFLICT ({id}) DO UPDATE SET living = excluded.living
)
INSERT INTO unreferenced (id)
SELECT id FROM summed WHERE living = 0 AND NOT known;
