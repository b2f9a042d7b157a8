-- Suspend deliveries that will not work by themselves.
-- They are found one by one in the index and deleted by place: older servers rather read all that is claimed.
WITH settled AS (
    DELETE FROM {claimed}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                                FROM unnest(%(sequence)s::bigint[]) AS wanted (sequence),
                                     LATERAL (SELECT living.ctid AS place
                                                FROM {claimed} AS living
                                               WHERE living.host_id = %(host)s AND living.sequence = wanted.sequence
                                               LIMIT 1) AS mine))
       AND host_id = %(host)s AND claimed_by = %(instance)s
    RETURNING *
)
INSERT INTO {suspended} (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt, line,
                         instance_id, reason, suspended_at)
SELECT settled.host_id, settled.sequence, 'send', settled.message_id, settled.subscription_id, settled.service_id,
       settled.priority, settled.attempt + 1, settled.line, settled.instance_id, outcome.reason, %(now)s
  FROM settled
  JOIN unnest(%(sequence)s::bigint[], %(reason)s::text[]) AS outcome (sequence, reason) USING (sequence);
