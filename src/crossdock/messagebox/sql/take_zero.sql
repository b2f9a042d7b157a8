-- What has a total of zero and no row in either log is unreferenced: in this snapshot nobody has it, and only whoever has
-- it could give it to somebody else.
WITH zero AS (
    SELECT {id} AS id FROM {total} WHERE total = 0
    EXCEPT
    (SELECT {id} FROM {log} UNION ALL SELECT {id} FROM {other})
), taken AS (
    DELETE FROM {total} AS known
     USING zero
     WHERE known.{id} = zero.id
    RETURNING known.{id} AS id
)
INSERT INTO unreferenced (id)
SELECT id FROM taken;
