-- Put claimed references back as they were, all but the one that was tried: that one counts its attempt, and has shown that
-- it does not end the process. They go to the host that has the service now, except what only one host instance may take.
-- What has come back and was claimed anew since is another claim, made by another transaction, and is left alone.
-- They are found one by one in the index and deleted by place, which nothing but the place may decide: else a server may
-- read all that is claimed, and all that a reader who stays for long keeps from being cleaned away.
WITH returned AS (
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
INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, line, instance_id,
                   deaths)
SELECT CASE WHEN returned.line < 0 THEN returned.host_id ELSE service.host_id END, returned.sequence, returned.priority,
       returned.message_id, returned.subscription_id, returned.service_id,
       CASE WHEN returned.sequence = %(tried)s THEN returned.attempt + 1 ELSE returned.attempt END, returned.line,
       returned.instance_id, CASE WHEN returned.sequence = %(tried)s THEN 0 ELSE returned.deaths END
  FROM returned
  JOIN service ON service.id = returned.service_id;
