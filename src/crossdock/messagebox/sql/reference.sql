-- Who still refers to messages and parts: the logs, their sums, and room that is given back.


-- name: may_be_unreferenced
-- Whether summing could free anything. A total below zero waits for what is in a log.
SELECT EXISTS (SELECT FROM {log})
    OR EXISTS (SELECT FROM {other})
    OR EXISTS (SELECT FROM {total} WHERE living <= 0);


-- name: lock_log
-- Alone with a closed log: whoever began to write to it before the swap has finished.
LOCK TABLE {log} IN ACCESS EXCLUSIVE MODE;


-- name: sum_log
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
                               THEN coalesce((SELECT reference_count FROM {kind} WHERE id = closed.id), 0)
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


-- name: sum_log_gently
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
SELECT id, delta + coalesce((SELECT reference_count FROM {kind} WHERE id = closed.id), 0)
  FROM closed
    ON CONFLICT ({id}) DO UPDATE
   SET living = known.living + excluded.living - coalesce((SELECT reference_count FROM {kind} WHERE id = excluded.{id}), 0);


-- name: truncate_log
-- Empty the log at once, also of rows that an open reader would keep from being cleaned away.
TRUNCATE {log};


-- name: take_zero
-- What has a total of zero and no row in either log is unreferenced: in this snapshot nobody has it, and only whoever has
-- it could give it to somebody else. Taken by an array, which goes by the index: a join may look for zeros once for each
-- total, where PostgreSQL believes that there are hardly any.
WITH zero AS MATERIALIZED (
    SELECT {id} AS id FROM {total} WHERE living = 0
    EXCEPT
    (SELECT {id} FROM {log} UNION ALL SELECT {id} FROM {other})
), taken AS (
    DELETE FROM {total}
     WHERE {id} = ANY (ARRAY(SELECT id FROM zero))
    RETURNING {id} AS id
)
INSERT INTO unreferenced (id)
SELECT id FROM taken;


-- name: fold_deliveries
-- Add up what came of settled batches, per service: all together, and by the minute.
WITH old AS (
    DELETE FROM delivery
    RETURNING service_id, delivered_at, count, retried, suspended
), new AS MATERIALIZED (
    SELECT service_id, date_bin('1 minute', delivered_at, '2000-01-01Z') AS minute,
           sum(count) AS delivered, sum(retried) AS retried, sum(suspended) AS suspended
      FROM old
     GROUP BY service_id, minute
), added AS (
    INSERT INTO delivery_total AS total (service_id, count, retried, suspended)
    SELECT service_id, sum(delivered), sum(retried), sum(suspended)
      FROM new
     GROUP BY service_id
        ON CONFLICT (service_id) DO UPDATE
       SET count = total.count + excluded.count, retried = total.retried + excluded.retried,
           suspended = total.suspended + excluded.suspended
)
INSERT INTO delivery_minute AS known (minute, service_id, delivered, retried, suspended)
SELECT minute, service_id, delivered, retried, suspended
  FROM new
    ON CONFLICT (minute, service_id) DO UPDATE
   SET delivered = known.delivered + excluded.delivered, retried = known.retried + excluded.retried,
       suspended = known.suspended + excluded.suspended;


-- name: list_hollow
-- Tables of ours that are large though nearly nothing is in them, with their size. PostgreSQL gives back what is empty at
-- the end of a table; but not if the last rows were deleted just while it looked, and then it does not look again for so few.
-- Where many are dead it will look again; while somebody's old transaction keeps them, nothing can be given back anyway.
SELECT relname, pg_relation_size(relid)
  FROM pg_stat_user_tables
 WHERE schemaname = current_schema()
   AND n_live_tup < %(rows)s
   AND n_dead_tup < %(rows)s
   AND pg_relation_size(relid) > %(bytes)s;


-- name: list_bloated
-- Indexes of our tables that are large though their table is nearly empty: they keep the pages of rows that are gone.
SELECT index.relname
  FROM pg_index
  JOIN pg_class AS index ON index.oid = pg_index.indexrelid
  JOIN pg_stat_user_tables AS rows ON rows.relid = pg_index.indrelid
 WHERE rows.schemaname = current_schema()
   AND index.relkind = 'i'
   AND pg_relation_size(index.oid) > %(bytes)s
   AND rows.n_live_tup < %(rows)s
   AND pg_relation_size(pg_index.indrelid) < %(bytes)s;


-- name: swap_log
-- Let everybody write to the other log from now on; gives the closed one.
UPDATE reference_log SET {kind} = 3 - {kind} RETURNING 3 - {kind};


-- name: create_unreferenced
-- What a round of cleanup is about to delete.
CREATE TEMPORARY TABLE IF NOT EXISTS unreferenced (id uuid) ON COMMIT DELETE ROWS;


-- name: table_size
SELECT pg_relation_size(%(name)s::regclass);
