-- Settle references by what is published in their stead. They count as delivered if the partner got the message.
WITH settled AS (
    DELETE FROM {claimed}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                                FROM unnest(%(sequence)s::bigint[]) AS wanted (sequence),
                                     LATERAL (SELECT living.ctid AS place
                                                FROM {claimed} AS living
                                               WHERE living.host_id = %(host)s AND living.sequence = wanted.sequence
                                               LIMIT 1) AS mine))
       AND claimed_by = %(instance)s
    RETURNING service_id, message_id, sequence
), counted AS (
    INSERT INTO delivery (service_id, count)
    SELECT service_id, count(*) FROM settled WHERE %(delivered)s GROUP BY service_id
)
SELECT array_agg(sequence), drop_references(array_agg(message_id)) FROM settled;
