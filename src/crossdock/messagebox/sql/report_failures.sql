-- Keep reports about messages that are still unrouted.
WITH reported AS (
    UPDATE suspended
       SET reported = true
      FROM unnest(%(message)s::uuid[], %(report)s::text[]) AS worked_out (message_id, report)
     WHERE suspended.message_id = worked_out.message_id AND suspended.kind = 'unrouted' AND NOT suspended.reported
    RETURNING suspended.message_id, worked_out.report
)
INSERT INTO routing_failure (message_id, report)
SELECT message_id, report::json
  FROM reported
    ON CONFLICT DO NOTHING;
