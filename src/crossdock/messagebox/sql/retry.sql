-- Put failed deliveries aside until they are due; the sequence number keeps their place.
WITH settled AS (
    DELETE FROM claimed
     WHERE host_id = %(host)s AND claimed_by = %(instance)s AND sequence = ANY(%(sequence)s::bigint[])
    RETURNING *
)
INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, due_at, reason)
SELECT settled.host_id, settled.sequence, settled.priority, settled.message_id, settled.subscription_id,
       settled.service_id, settled.attempt + 1, outcome.due_at, outcome.reason
  FROM settled
  JOIN unnest(%(sequence)s::bigint[], %(due_at)s::timestamptz[], %(reason)s::text[])
       AS outcome (sequence, due_at, reason) USING (sequence);
