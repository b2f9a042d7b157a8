-- Put failed deliveries aside until they are due, at the host that has the service now; the sequence number keeps their
-- place.
-- What has come back and was claimed anew since is another claim, made by another transaction, and is left alone.
-- They are found one by one in the index and deleted by place, which nothing but the place may decide: else a server may
-- read all that is claimed, and all that a reader who stays for long keeps from being cleaned away.
WITH settled AS (
    DELETE FROM {claimed}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                                FROM unnest(%(sequence)s::bigint[], %(claim)s::bigint[]) AS wanted (sequence, claim),
                                     LATERAL (SELECT living.ctid AS place
                                                FROM {claimed} AS living
                                               WHERE living.host_id = %(host)s
                                                 AND living.sequence = wanted.sequence
                                                 AND wanted.claim IN (0, living.xmin::text::bigint)
                                               LIMIT 1) AS mine))
       AND claimed_by = %(instance)s
    RETURNING *
)
INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
                       due_at, reason)
SELECT CASE WHEN settled.line < 0 THEN settled.host_id ELSE service.host_id END, settled.sequence, settled.priority,
       settled.message_id, settled.subscription_id, settled.service_id, settled.attempt + CASE WHEN %(tried)s THEN 1 ELSE 0 END, settled.line, settled.instance_id, outcome.due_at, outcome.reason
  FROM settled
  JOIN unnest(%(sequence)s::bigint[], %(due_at)s::timestamptz[], %(reason)s::text[])
       AS outcome (sequence, due_at, reason) USING (sequence)
  JOIN service ON service.id = settled.service_id;
