-- Enter sources in the intake ledger. The lock makes the order of sequence numbers the order of commits: without it
-- Spark's offset could pass a row that is committed later, and that source would wait for a restart.
WITH listed AS (
    SELECT location_id, identity, size
      FROM unnest(%(location)s::integer[], %(identity)s::bytea[], %(size)s::bigint[])
           AS item (location_id, identity, size),
           (SELECT pg_advisory_xact_lock(%(lock)s)) AS locked
)
INSERT INTO intake (location_id, identity, size)
SELECT location_id, identity, size
  FROM listed
    ON CONFLICT (sha256(identity)) DO NOTHING
RETURNING sequence;
