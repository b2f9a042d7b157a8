-- As sum_log, where somebody reads the log and it cannot be locked: take out the rows that are there now.
WITH taken AS (
    DELETE FROM {log}
    RETURNING {id} AS id, delta
), closed AS (
    SELECT id, sum(delta) AS delta
      FROM taken
     GROUP BY id
)
INSERT INTO {total} AS known ({id}, living)
SELECT id, delta + coalesce((SELECT given FROM {kind} WHERE id = closed.id), 0)
  FROM closed
    ON CONFLICT ({id}) DO UPDATE
   SET living = known.living + excluded.living - coalesce((SELECT given FROM {kind} WHERE id = excluded.{id}), 0);
