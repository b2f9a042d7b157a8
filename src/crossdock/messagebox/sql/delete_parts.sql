-- Delete the unreferenced parts and their fragments.
WITH gone AS (
    DELETE FROM part
     USING unreferenced
     WHERE part.id = unreferenced.id
    RETURNING part.id, part.fragments
), pieces AS (
    DELETE FROM fragment
     USING gone
     WHERE fragment.part_id = gone.id AND gone.fragments > 0
)
SELECT count(*) FROM gone;
