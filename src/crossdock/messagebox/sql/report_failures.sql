-- Keep reports about messages that are still unrouted.
WITH reported AS (
    UPDATE suspended
       SET reported = true
     WHERE message_id = ANY (%(message)s::uuid[]) AND kind = 'unrouted' AND NOT reported
    RETURNING message_id
)
INSERT INTO routing_failure (message_id, report)
SELECT message_id, worked_out.report::json
  FROM reported
  JOIN unnest(%(message)s::uuid[], %(report)s::text[]) AS worked_out (message_id, report) USING (message_id)
    ON CONFLICT DO NOTHING;
