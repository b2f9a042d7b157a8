-- What waits for a person, and what nobody wants.


-- name: list_suspended
-- A page of suspended messages, the oldest first. The context is read by Python: it may hold text that SQL cannot, such as
-- \u0000. A message that is gone is listed without one, and without its time what has a time that Python does not have. The
-- page is found first, so that only its rows are joined.
SELECT page.message_id AS id, page.kind, page.code, page.reason, page.attempt,
       CASE WHEN page.suspended_at BETWEEN '0001-01-02Z' AND '9999-12-30Z' THEN page.suspended_at END AS suspended_at,
       page.host_id, page.sequence, page.instance_id, service.name AS port, service.application, message.context,
       (SELECT sum(part.size) FROM part WHERE part.id = ANY(message.parts)) AS bytes,
       routing_failure.report::text AS report
  FROM (SELECT *
          FROM suspended
         WHERE sequence > %(after)s
           AND (%(message)s::uuid[] IS NULL OR message_id = ANY(%(message)s::uuid[]))
           AND (%(port)s::text IS NULL
                OR service_id = ANY (ARRAY(SELECT id FROM service WHERE name = %(port)s::text)))
           AND (%(code)s::text IS NULL OR code = %(code)s::text)
           AND (%(since)s::text IS NULL OR suspended_at >= %(since)s::text::timestamptz)
           AND (%(age)s::interval IS NULL OR suspended_at >= clock() - %(age)s::interval)
         ORDER BY sequence
         LIMIT %(limit)s) AS page
  -- Each by itself: a plan that was made when there were none would else read them all.
  LEFT JOIN LATERAL (SELECT context, parts FROM shown_message WHERE id = page.message_id LIMIT 1) AS message ON true
  LEFT JOIN service ON service.id = page.service_id
  LEFT JOIN LATERAL (SELECT report FROM routing_failure WHERE message_id = page.message_id LIMIT 1) AS routing_failure
    ON page.kind = 'unrouted'
 ORDER BY page.sequence;


-- name: find_suspended
-- The suspended deliveries of messages.
SELECT host_id, sequence FROM suspended WHERE message_id = ANY(%(message)s) ORDER BY sequence;


-- name: group_suspended
-- What is suspended, counted by code and port.
SELECT suspended.code, service.name AS port, count(*) AS count, min(suspended.suspended_at) AS first,
       max(suspended.suspended_at) AS last, (array_agg(suspended.message_id ORDER BY suspended.sequence))[1] AS sample
  FROM suspended
  LEFT JOIN service ON service.id = suspended.service_id
 WHERE suspended.suspended_at BETWEEN '0001-01-02Z' AND '9999-12-30Z'
 GROUP BY suspended.code, service.name;


-- name: list_withheld
-- takes: sequences bigint[]
-- gives: sequence bigint, withheld text
-- Of suspended deliveries those that cannot be resumed: their host lacks a label. For whoever may resume or edit them.
SELECT suspended.sequence, why.withheld
  FROM suspended
  JOIN service ON service.id = suspended.service_id
 CROSS JOIN LATERAL (SELECT why_withheld(suspended.message_id,
                                         CASE WHEN suspended.subqueue < 0 AND service.class <> 'orchestration'
                                              THEN suspended.host_id
                                              ELSE service.host_id END)) AS why (withheld)
 WHERE suspended.sequence = ANY (%(sequences)s::bigint[]) AND suspended.kind IN ('send', 'stopped') AND why.withheld IS NOT NULL
   AND (may_do('operator', service.application) OR may_do('edit', service.application));


-- name: resume_deliveries
-- takes: hosts smallint[], sequences bigint[]
-- gives: host_id smallint, sequence bigint, message_id uuid, target smallint, recorded bigint
-- Deliver suspended references again, from the first attempt on, also where the service is stopped. What the host lacks a
-- label of stays suspended, and says so. Whoever may not do this to an application leaves its references alone. What an
-- application left behind that was undeployed stays until it is deployed again. What is compared here and below is what is
-- committed, and not what a transaction has seen an hour ago.
WITH resumed AS (
    DELETE FROM suspended
     USING service, application
     WHERE suspended.host_id = ANY (%(hosts)s::smallint[]) AND suspended.sequence = ANY (%(sequences)s::bigint[])
       AND (suspended.host_id, suspended.sequence) IN (SELECT * FROM unnest(%(hosts)s::smallint[], %(sequences)s::bigint[]))
       AND suspended.kind IN ('send', 'stopped')
       AND service.id = suspended.service_id AND may_do('operator', service.application)
       AND application.name = service.application AND application.deployed
       AND current_setting('transaction_isolation') = 'read committed'
    RETURNING suspended.*, service.name, service.application
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                          0, false, 'resumed', NULL, NULL, NULL, NULL, suspended_at, 'resumed', NULL)::moving) AS rows
      FROM resumed
)
SELECT resumed.host_id, resumed.sequence, resumed.message_id, moved.host_id,
       audit('resume', resumed.message_id::text,
             jsonb_build_object('host', resumed.host_id, 'sequence', resumed.sequence, 'port', resumed.name, 'kind', resumed.kind,
                                'code', resumed.code, 'attempt', resumed.attempt),
             jsonb_build_object('state', 'queued'), 'done', resumed.application)
  FROM moving, move_references(moving.rows) AS moved
  JOIN resumed ON resumed.sequence = moved.sequence;


-- name: list_stopped
-- takes: service integer
-- gives: host_id smallint, sequence bigint, message_id uuid, service_id integer
-- Of a service what was suspended because it was stopped, in the order in which it was published.
SELECT host_id, sequence, message_id, service_id
  FROM suspended
 WHERE service_id = %(service)s AND kind = 'stopped' AND instance_id IS NULL
   AND may_do('operator', (SELECT application FROM service WHERE id = %(service)s))
 ORDER BY sequence + 0 -- or all might be read in that order, to save sorting those that match
   FOR UPDATE;


-- name: list_resumable
-- takes: hosts smallint[], sequences bigint[]
-- gives: host_id smallint, sequence bigint, message_id uuid, service_id integer
-- Of these suspended references those that may begin an instance of an orchestration, in the order in which they were
-- published.
SELECT suspended.host_id, suspended.sequence, suspended.message_id, suspended.service_id
  FROM suspended
  JOIN service ON service.id = suspended.service_id
 WHERE suspended.host_id = ANY (%(hosts)s::smallint[]) AND suspended.sequence = ANY (%(sequences)s::bigint[])
   AND (suspended.host_id, suspended.sequence) IN (SELECT * FROM unnest(%(hosts)s::smallint[], %(sequences)s::bigint[]))
   AND suspended.kind IN ('send', 'stopped') AND suspended.instance_id IS NULL
   AND service.class = 'orchestration' AND may_do('operator', service.application)
 ORDER BY suspended.sequence
   FOR UPDATE OF suspended;


-- name: list_begun_by_messages
-- Of services those whose instances messages begin, with their hosts and what begins them.
SELECT id, host_id, receives
  FROM service
 WHERE id = ANY (%(service)s::integer[]) AND class = 'orchestration' AND json_array_length(receives) > 0;


-- name: list_contexts
-- takes: hosts smallint[], sequences bigint[]
-- gives: host_id smallint, sequence bigint, context text
-- The contexts of suspended messages that may begin an instance, but of those that lack a label where they are to go, and of
-- those of applications that whoever asks may not operate.
SELECT suspended.host_id, suspended.sequence, message.context::text
  FROM suspended
  JOIN service ON service.id = suspended.service_id
  JOIN host ON host.id = suspended.host_id
 CROSS JOIN LATERAL (SELECT context FROM message WHERE id = suspended.message_id LIMIT 1) AS message
 WHERE suspended.host_id = ANY (%(hosts)s::smallint[]) AND suspended.sequence = ANY (%(sequences)s::bigint[])
   AND (suspended.host_id, suspended.sequence) IN (SELECT * FROM unnest(%(hosts)s::smallint[], %(sequences)s::bigint[]))
   AND suspended.kind IN ('send', 'stopped') AND suspended.instance_id IS NULL
   AND service.class = 'orchestration' AND may_do('operator', service.application)
   AND CASE WHEN host.labelled THEN why_withheld(suspended.message_id, service.host_id) END IS NULL;


-- name: begin_suspended
-- takes: instances json, waits json, given json
-- gives: given bigint
-- The instances that suspended references begin once they are resumed, with what they wait for, as whoever publishes to a
-- started orchestration makes them. What joins a running instance is given to that. They come after what the instance has, in
-- the order of their numbers, so they have its priority. What is given to an instance of another service stays where it is. An
-- instance is begun by what is suspended for its orchestration, and under an id that no other host has: that one could do no
-- further step. It waits by correlations of its orchestration; those that are there wait as they do.
WITH begun AS (
    INSERT INTO instance (host_id, id, service_id, version, activation)
    SELECT service.host_id, made.id, service.id, service.version, made.activation
      FROM json_to_recordset(%(instances)s::json) AS made (id uuid, service_id integer, activation uuid)
      JOIN service ON service.id = made.service_id AND service.class = 'orchestration' AND may_do('operator', service.application)
     WHERE EXISTS (SELECT FROM suspended WHERE suspended.message_id = made.activation AND suspended.service_id = service.id)
       AND NOT EXISTS (SELECT
                         FROM host
                        CROSS JOIN LATERAL (SELECT FROM instance WHERE host_id = host.id AND id = made.id LIMIT 1) AS elsewhere
                        WHERE host.id <> service.host_id)
    RETURNING id, service_id
), waiting AS (
    INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value)
    SELECT made.instance_id, service.id, service.host_id, made.correlation_id, made.hash, made.value
      FROM json_to_recordset(%(waits)s::json)
           AS made (instance_id uuid, service_id integer, correlation_id integer, hash uuid, value text[])
      JOIN begun ON begun.id = made.instance_id AND begun.service_id = made.service_id
      JOIN service ON service.id = begun.service_id
      JOIN correlation ON correlation.id = made.correlation_id AND correlation.service_id = service.id
     WHERE correlation_of(made.hash) = made.correlation_id
), taken AS (
    UPDATE suspended
       SET instance_id = given.instance_id, priority = 0,
           subscription_id = coalesce(given.subscription_id, suspended.subscription_id)
      FROM json_to_recordset(%(given)s::json)
           AS given (host_id smallint, sequence bigint, instance_id uuid, subscription_id bigint),
           service
     WHERE suspended.host_id = given.host_id AND suspended.sequence = given.sequence AND suspended.kind IN ('send', 'stopped')
       AND service.id = suspended.service_id AND service.class = 'orchestration' AND may_do('operator', service.application)
       AND CASE WHEN given.subscription_id IS NULL
                THEN (given.instance_id, service.id) IN (SELECT begun.id, begun.service_id FROM begun)
                ELSE EXISTS (SELECT
                               FROM instance_subscription AS running
                              WHERE running.id = given.subscription_id AND running.instance_id = given.instance_id
                                AND running.service_id = service.id) END
    RETURNING 1
)
SELECT count(*) FROM taken;


-- name: resume_stopped
-- takes: service integer
-- gives: count bigint
-- Starting a service resumes what was suspended only because it was stopped. One that is still stopped keeps it: what is resumed
-- there has to be recorded. What its host lacks a label of stays, and says so; nothing carries labels where there never were
-- any. What a service left that is deployed no more stays as well.
WITH labelled AS MATERIALIZED (
    SELECT id FROM host WHERE labelled
), home AS MATERIALIZED (
    SELECT host_id
      FROM service
     WHERE id = %(service)s AND deployed AND state = 'started' AND may_do('operator', application)
       AND current_setting('transaction_isolation') = 'read committed'
), resumed AS (
    DELETE FROM suspended
     WHERE service_id = %(service)s AND kind = 'stopped' AND EXISTS (SELECT FROM home)
       AND CASE WHEN host_id IN (SELECT id FROM labelled)
                THEN why_withheld(message_id, (SELECT host_id FROM home)) END IS NULL
    RETURNING *
), kept AS (
    UPDATE suspended
       SET kind = 'send', code = 'label-missing', reason = why_withheld(message_id, (SELECT host_id FROM home))
     WHERE service_id = %(service)s AND kind = 'stopped' AND EXISTS (SELECT FROM home)
       AND CASE WHEN host_id IN (SELECT id FROM labelled)
                THEN why_withheld(message_id, (SELECT host_id FROM home)) END IS NOT NULL
    RETURNING *
), tracked AS (
    INSERT INTO track_settled (host_id, event, code, reason, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_id, event, code, reason, attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM (SELECT *, 'resumed' AS event, NULL AS code, NULL AS reason
              FROM (SELECT host_id, sequence, message_id, service_id, attempt, instance_id FROM resumed) AS resumed
             UNION ALL
            SELECT host_id, sequence, message_id, service_id, attempt, instance_id, 'suspended', code, reason FROM kept)
           AS happened
     WHERE service_id NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY host_id, event, code, reason, sequence >> 12, attempt
), returned AS (
    INSERT INTO queue (host_id, subqueue, sequence, priority, message_id, subscription_id, service_id, instance_id)
    SELECT service.host_id, service.subqueue, resumed.sequence, resumed.priority, resumed.message_id,
           resumed.subscription_id, resumed.service_id, resumed.instance_id
      FROM resumed
      JOIN service ON service.id = resumed.service_id
)
SELECT count(*) FROM resumed;


-- name: terminate_deliveries
-- takes: hosts smallint[], sequences bigint[]
-- gives: host_id smallint, sequence bigint, message_id uuid, dropped integer, recorded bigint
-- End suspended references for good; the message goes with its last one. Whoever may not do this to an application leaves its
-- references alone; what belongs to none is for who may do it to all.
WITH ended AS (
    DELETE FROM suspended
     WHERE suspended.host_id = ANY (%(hosts)s::smallint[]) AND suspended.sequence = ANY (%(sequences)s::bigint[])
       AND (suspended.host_id, suspended.sequence) IN (SELECT * FROM unnest(%(hosts)s::smallint[], %(sequences)s::bigint[]))
       AND may_do('operator', (SELECT service.application FROM service WHERE service.id = suspended.service_id))
    RETURNING suspended.*, (SELECT service.name FROM service WHERE service.id = suspended.service_id),
              (SELECT service.application FROM service WHERE service.id = suspended.service_id)
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_id, 'terminated', attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM ended
     WHERE coalesce(service_id, 0) NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY host_id, sequence >> 12, attempt
), forgotten AS (
    SELECT drop_references(array_agg(message_id)) AS count FROM ended HAVING count(*) > 0
)
SELECT ended.host_id, ended.sequence, ended.message_id, forgotten.count,
       audit('terminate', ended.message_id::text,
             jsonb_build_object('host', ended.host_id, 'sequence', ended.sequence, 'port', ended.name, 'kind', ended.kind,
                                'code', ended.code, 'attempt', ended.attempt, 'reason', ended.reason),
             NULL, 'done', ended.application)
  FROM ended, forgotten;


-- name: edit_delivery
-- takes: at_host smallint, at_sequence bigint, message uuid, context json, part uuid[], name text[], body bytea[],
--        size bigint[], pieces integer[], changes jsonb
-- gives: message_id uuid, target smallint, recorded bigint
-- Another message takes the place of the one of a suspended delivery, and is delivered to that subscriber alone: the reference
-- keeps its number, and with it its place in the order of an ordered service. The original keeps a reference for a while. Its
-- labels hold for what takes its place, which has them all. Nobody takes an id that a source in the ledger will need. How large
-- a body is is not what the person says: whoever claims it would have all of it in memory.
WITH edited AS (
    DELETE FROM suspended
     USING service
     WHERE suspended.host_id = %(at_host)s AND suspended.sequence = %(at_sequence)s AND suspended.kind IN ('send', 'stopped')
       AND service.id = suspended.service_id AND may_do('edit', service.application)
       AND why_withheld(suspended.message_id, service.host_id) IS NULL
       AND current_setting('transaction_isolation') = 'read committed'
       AND (SELECT application.deployed FROM application WHERE application.name = service.application)
       AND NOT EXISTS (SELECT
                         FROM unnest(%(part)s || %(message)s) AS own (id)
                         JOIN intake ON intake.sequence = ledger_number(own.id))
       AND cardinality(%(part)s) BETWEEN 1 AND 32767 AND array_ndims(%(part)s) = 1
       AND octet_length(%(context)s::text) <= 1048576 -- CONTEXT_LIMIT_BYTES: each claim reads it
       AND labels_of(%(context)s) @> (SELECT labels_of(message.context) FROM message WHERE message.id = suspended.message_id)
    RETURNING suspended.*, service.name, service.application
), stored AS (
    INSERT INTO message (id, context, part_count, parts, reference_count)
    SELECT %(message)s, %(context)s, cardinality(%(part)s), %(part)s, 1 FROM edited
    RETURNING id
), parts AS (
    INSERT INTO part (id, name, body, size, fragments)
    SELECT own.id, own.name, own.body, coalesce(length(own.body), own.size), coalesce(own.pieces, 0)
      FROM edited, unnest(%(part)s, %(name)s, %(body)s, %(size)s, %(pieces)s) AS own (id, name, body, size, pieces)
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT edited.host_id, 'edited', edited.attempt, edited.sequence >> 12, ARRAY[(edited.sequence & 4095)::smallint],
           ARRAY[edited.message_id], ARRAY[edited.service_id],
           CASE WHEN edited.instance_id IS NOT NULL THEN ARRAY[edited.instance_id] END
      FROM edited
      JOIN service ON service.id = edited.service_id AND service.track <> 'off'
), tracked_message AS (
    -- The message that takes the place: published by the owner, under whose rights this runs, for a port of this host.
    INSERT INTO track_few (publisher, epoch, message_ids, contexts, references_to, subscriptions, exceptions, origins,
                           first_reference, last_reference, body_of, bodies)
    SELECT current_user, (SELECT epoch FROM box), ARRAY[%(message)s::uuid], ARRAY[%(context)s::json],
           CASE WHEN edited.instance_id IS NULL THEN ARRAY[%(message)s::uuid] ELSE ARRAY[]::uuid[] END,
           CASE WHEN edited.instance_id IS NULL THEN ARRAY[edited.subscription_id::integer] ELSE ARRAY[]::integer[] END,
           CASE WHEN edited.instance_id IS NOT NULL
                THEN json_build_object('queued', json_build_array(json_build_object(
                         'message_id', %(message)s::uuid, 'subscription_id', edited.subscription_id,
                         'instance_id', edited.instance_id))) END,
           json_build_array(json_build_object('messages', 1, 'service', edited.service_id,
                                              'settled', json_build_array(edited.sequence))),
           edited.sequence, edited.sequence,
           CASE WHEN service.track = 'bodies' THEN (%(part)s::uuid[])[1:1] END,
           CASE WHEN service.track = 'bodies' THEN (%(body)s::bytea[])[1:1] END
      FROM edited
      JOIN service ON service.id = edited.service_id AND service.track <> 'off'
), kept AS (
    INSERT INTO original (message_id, edited_id, host_id, sequence, service_id)
    SELECT message_id, %(message)s, host_id, sequence, service_id FROM edited
), queued AS (
    INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, subqueue, instance_id)
    SELECT service.host_id, edited.sequence, edited.priority, stored.id, edited.subscription_id, edited.service_id,
           CASE WHEN edited.subqueue < 0 AND service.class <> 'orchestration' THEN edited.subqueue ELSE service.subqueue END,
           edited.instance_id
      FROM edited
      JOIN service ON service.id = edited.service_id
     CROSS JOIN stored
    RETURNING host_id
)
SELECT edited.message_id, queued.host_id,
       audit('edit', edited.message_id::text,
             jsonb_build_object('host', edited.host_id, 'sequence', edited.sequence, 'port', edited.name, 'kind', edited.kind,
                                'code', edited.code, 'attempt', edited.attempt, 'reason', edited.reason),
             %(changes)s || jsonb_build_object('message', %(message)s), 'done', edited.application)
  FROM edited, queued;


-- name: purge_originals
-- Originals of edited messages that have been kept for long enough lose their reference.
WITH past AS (
    DELETE FROM original
     WHERE edited_id IN (SELECT edited_id
                           FROM original
                          WHERE edited_at < clock() - %(age)s::interval
                          LIMIT %(limit)s
                            FOR UPDATE SKIP LOCKED)
    RETURNING message_id
)
SELECT drop_references(array_agg(message_id)) FROM past HAVING count(*) > 0;


-- name: purge_suspended
-- End references that have been suspended for longer than somebody said they should be kept.
WITH ended AS (
    DELETE FROM suspended
     WHERE (host_id, sequence) IN (SELECT host_id, sequence
                                     FROM suspended
                                    WHERE suspended_at < clock() - %(age)s::interval
                                    LIMIT %(limit)s
                                      FOR UPDATE SKIP LOCKED)
    RETURNING *
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_id, 'terminated', attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM ended
     WHERE coalesce(service_id, 0) NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY host_id, sequence >> 12, attempt
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM ended WHERE (SELECT message FROM reference_log) = 2
)
SELECT count(*) FROM ended;


-- name: list_unreported
-- Messages that nobody wanted and whose nearest misses are still to be worked out. Each is looked up by itself: a plan that was
-- made when there were none would else read all messages.
SELECT suspended.message_id, message.context
  FROM suspended
 CROSS JOIN LATERAL (SELECT context::text
                       FROM message
                      WHERE id = suspended.message_id
                      LIMIT 1) AS message
 WHERE suspended.kind = 'unrouted' AND NOT suspended.reported
 ORDER BY suspended.sequence
 LIMIT %(limit)s;


-- name: report_failures
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


-- name: lock_reroutable
-- Messages that nobody wanted, or that an instance ended without taking, to be routed again. Locked: their references are what
-- keeps them here meanwhile.
SELECT message_id, kind, sequence, service_id
  FROM suspended
 WHERE message_id = ANY(%(message)s) AND kind IN ('unrouted', 'discarded')
 ORDER BY sequence + 0 -- or all might be read in that order, to save sorting those that match
   FOR UPDATE;


-- name: list_enlisted_after
-- Of subscriptions the last reference that was drawn before they were enlisted.
SELECT id, enlisted_after FROM subscription WHERE id = ANY (%(subscription)s::integer[]);


-- name: list_holders
-- Which of these instances, at these hosts, have which of these messages.
SELECT instance_id, message_id
  FROM held
 WHERE host_id = ANY (%(host)s::smallint[]) AND instance_id = ANY (%(instance)s::uuid[])
   AND message_id = ANY (%(message)s::uuid[])
 UNION
SELECT instance_id, message_id
  FROM queue
 WHERE instance_id = ANY (%(instance)s::uuid[]) AND message_id = ANY (%(message)s::uuid[])
 UNION
SELECT instance_id, message_id
  FROM claimed
 WHERE instance_id = ANY (%(instance)s::uuid[]) AND message_id = ANY (%(message)s::uuid[])
 UNION
SELECT instance_id, message_id
  FROM scheduled
 WHERE instance_id = ANY (%(instance)s::uuid[]) AND message_id = ANY (%(message)s::uuid[]);


-- name: forget_suspended
-- These found a subscriber: the references that kept them are replaced, and the report of their failure is void.
WITH routed AS (
    DELETE FROM suspended
     WHERE message_id = ANY(%(message)s) AND kind IN ('unrouted', 'discarded')
    RETURNING *
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_id, 'rerouted', attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM routed
     WHERE coalesce(service_id, 0) NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY host_id, sequence >> 12, attempt
)
DELETE FROM routing_failure
 WHERE message_id = ANY(%(message)s);


-- name: replace_suspended
-- Take away a suspended reference, since something is published in its place.
WITH replaced AS (
    DELETE FROM suspended
     WHERE host_id = %(host)s AND sequence = %(sequence)s
    RETURNING *
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_id, 'replaced', attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM replaced
     WHERE coalesce(service_id, 0) NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY host_id, sequence >> 12, attempt
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, -1 FROM replaced WHERE (SELECT message FROM reference_log) = 1
), log_2 AS (
    INSERT INTO message_ref_log_2 (message_id, delta)
    SELECT message_id, -1 FROM replaced WHERE (SELECT message FROM reference_log) = 2
)
SELECT message_id FROM replaced;


-- name: add_references
-- More references to messages, in the log that is active: one statement, so that a swap meanwhile is either seen or not.
WITH entry AS (
    SELECT * FROM unnest(%(message)s::uuid[], %(delta)s::integer[]) AS entry (message_id, delta) WHERE delta <> 0
), log_1 AS (
    INSERT INTO message_ref_log_1 (message_id, delta)
    SELECT message_id, delta FROM entry WHERE (SELECT message FROM reference_log) = 1
)
INSERT INTO message_ref_log_2 (message_id, delta)
SELECT message_id, delta FROM entry WHERE (SELECT message FROM reference_log) = 2;
