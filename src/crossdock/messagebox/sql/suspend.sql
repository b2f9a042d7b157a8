-- Suspend deliveries that will not work by themselves, and responses that nobody waits for any more. One that stops an
-- ordered line goes where the line is now: there it is looked for.
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
INSERT INTO suspended (host_id, sequence, kind, message_id, subscription_id, service_id, priority, attempt, line,
                       instance_id, reason, suspended_at)
SELECT CASE WHEN settled.line > 0 THEN service.host_id ELSE settled.host_id END, settled.sequence, %(kind)s,
       settled.message_id, settled.subscription_id, settled.service_id, settled.priority,
       settled.attempt + 1, settled.line, settled.instance_id, outcome.reason, %(now)s
  FROM settled
  JOIN unnest(%(sequence)s::bigint[], %(reason)s::text[]) AS outcome (sequence, reason) USING (sequence)
  JOIN service ON service.id = settled.service_id;
