-- Delete the unreferenced parts and their fragments.
WITH gone AS (
    DELETE FROM part
     WHERE id = ANY (ARRAY(SELECT id FROM unreferenced))
    RETURNING id, fragments
), pieces AS (
    DELETE FROM fragment
     WHERE part_id = ANY (ARRAY(SELECT id FROM gone WHERE fragments > 0))
)
SELECT count(*) FROM gone;
