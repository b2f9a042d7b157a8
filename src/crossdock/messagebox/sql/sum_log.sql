-- Add a closed log into the totals. What came and went within it leaves no total: it is unreferenced, unless the other log
-- still has a row of it. With both logs and the totals in one snapshot the count is exact.
WITH closed AS (
    SELECT {id} AS id, sum(delta) AS delta
      FROM {log}
     GROUP BY {id}
), summed AS MATERIALIZED (
    SELECT closed.id, closed.delta + coalesce(known.total, 0) AS total, known.{id} IS NOT NULL AS known
      FROM closed
      LEFT JOIN {total} AS known ON known.{id} = closed.id
), zero AS MATERIALIZED (
    SELECT id FROM summed WHERE total = 0 AND NOT known
    EXCEPT
    SELECT {id} FROM {other}
), kept AS (
    INSERT INTO {total} AS known ({id}, total)
    SELECT summed.id, summed.total
      FROM summed
      LEFT JOIN zero ON zero.id = summed.id
     WHERE zero.id IS NULL
        ON CONFLICT ({id}) DO UPDATE SET total = excluded.total
)
INSERT INTO unreferenced (id)
SELECT id FROM zero;
