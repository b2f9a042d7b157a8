-- Settle delivered references. Only rows still claimed by this instance count: after it was taken for dead, its references
-- are somebody else's.
WITH settled AS (
    DELETE FROM claimed
     WHERE host_id = %(host)s AND claimed_by = %(instance)s AND sequence = ANY(%(sequence)s)
    RETURNING service_id
)
INSERT INTO delivery (service_id, count, delivered_at)
SELECT service_id, count(*), %(now)s
  FROM settled
 GROUP BY service_id;
