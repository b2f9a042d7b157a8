-- Settle delivered references. Only rows still claimed by this instance count: after it was taken for dead, its references
-- are somebody else's.
-- They are found one by one in the index and deleted by place, which nothing but the place may decide: else a server may
-- read all that is claimed, and all that a reader who stays for long keeps from being cleaned away.
WITH settled AS (
    DELETE FROM {claimed}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                                FROM unnest(%(sequence)s::bigint[]) AS wanted (sequence),
                                     LATERAL (SELECT living.ctid AS place
                                                FROM {claimed} AS living
                                               WHERE living.host_id = %(host)s AND living.sequence = wanted.sequence
                                               LIMIT 1) AS mine))
       AND claimed_by = %(instance)s
    RETURNING service_id, message_id
), counted AS (
    INSERT INTO delivery (service_id, count, delivered_at)
    SELECT service_id, count(*), %(now)s FROM settled GROUP BY service_id
)
SELECT drop_references(array_agg(message_id)) FROM settled;
