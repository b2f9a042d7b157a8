-- Suspend deliveries that will not work by themselves.
WITH settled AS (
    DELETE FROM {claimed}
     WHERE host_id = %(host)s AND claimed_by = %(instance)s AND sequence = ANY(%(sequence)s::bigint[])
    RETURNING *
)
INSERT INTO {suspended} (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt, line,
                         instance_id, reason, suspended_at)
SELECT settled.host_id, settled.sequence, 'send', settled.message_id, settled.subscription_id, settled.service_id,
       settled.priority, settled.attempt + 1, settled.line, settled.instance_id, outcome.reason, %(now)s
  FROM settled
  JOIN unnest(%(sequence)s::bigint[], %(reason)s::text[]) AS outcome (sequence, reason) USING (sequence);
