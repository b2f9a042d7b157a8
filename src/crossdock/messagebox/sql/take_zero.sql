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
