-- Running instances of orchestrations: their steps, what they hold and wait for, and their end.


-- name: lock_instances
-- takes: id uuid[], step integer[], parks boolean[]
-- gives: locked uuid
-- The fence of a step: whoever does the next one has seen all the steps that are done. In the order in which everybody locks
-- them. What is only parked is for an instance that is suspended, and nothing else is done there. Each is looked up by itself,
-- here and below: a plan that was made while there were few instances would else read them all.
SELECT mine.id
  FROM (SELECT *
          FROM unnest(%(id)s::uuid[], %(step)s::integer[], %(parks)s::boolean[]) AS each (id, step, parks)
         ORDER BY id) AS wanted
 CROSS JOIN LATERAL (SELECT instance.id
                       FROM {instance} AS instance
                      WHERE instance.host_id = %(host)s AND instance.id = wanted.id
                        AND instance.step = wanted.step AND (instance.state = 'suspended') = wanted.parks
                      LIMIT 1
                        FOR UPDATE) AS mine;


-- name: list_given
-- takes: instance uuid[], sequence bigint[]
-- gives: given uuid
-- Instances that are given messages besides these claims. After their subscriptions are locked: nobody gives them any more.
SELECT wanted.id
  FROM unnest(%(instance)s::uuid[]) AS wanted (id)
 WHERE (SELECT true FROM {queue} AS queue WHERE queue.instance_id = wanted.id LIMIT 1) IS NOT NULL
    OR (SELECT true
          FROM {claimed} AS claimed
         WHERE claimed.instance_id = wanted.id AND claimed.sequence <> ALL (%(sequence)s::bigint[])
         LIMIT 1) IS NOT NULL;


-- name: hold
-- takes: host_instance integer, sequence bigint[], claim bigint[], instance uuid[], step integer[]
-- gives: held bigint
-- Claimed references that instances keep: given to their code in this step, or to be given later. They keep their number, and
-- the message its count.
WITH settled AS (
    {take_claimed}
    RETURNING host_id, sequence, message_id, service_id, subscription_id, attempt, claimed_at
), wanted AS (
    SELECT DISTINCT ON (settled.sequence) settled.*, wanted.instance_id, wanted.step
      FROM settled
      JOIN unnest(%(sequence)s::bigint[], %(instance)s::uuid[], %(step)s::integer[])
           AS wanted (sequence, instance_id, step) USING (sequence)
     ORDER BY settled.sequence
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, claimed_at, block, sequence, message_id, service_id, instance_id)
    SELECT %(host)s, 'held', (attempt + 1)::smallint, claimed_at, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM wanted
     WHERE service_id NOT IN (SELECT service.id FROM service WHERE service.track = 'off')
     GROUP BY sequence >> 12, attempt, claimed_at
), kept AS (
    INSERT INTO {held} (host_id, instance_id, sequence, message_id, step, subscription_id)
    SELECT host_id, instance_id, sequence, message_id, step, subscription_id FROM wanted
), counted AS (
    INSERT INTO delivery (service_id, count)
    SELECT service_id, count(*) FROM settled GROUP BY service_id
)
SELECT count(*) FROM settled;


-- name: write_instances
-- takes: id uuid[], service integer[], version text[], activation uuid[], step integer[], state text[], waiting_for text[],
--        line text[], code text[], reason text[], traceback text[]
-- gives: written bigint
-- What instances are after a step. One that waits for the first time is new here; a cancelled one stays so until it ends. One
-- that was suspended and resumed may have gone on with newer code, but of no other orchestration. No two hosts have instances
-- of the same id: whoever asks for one by its id means one of them.
WITH written AS (
    INSERT INTO {instance} AS known (host_id, id, service_id, version, activation, step, state, waiting_for, line, code, reason,
                                     traceback)
    SELECT %(host)s, wanted.id, service.id, wanted.version, wanted.activation, wanted.step, wanted.state, wanted.waiting_for,
           wanted.line, wanted.code, wanted.reason, wanted.traceback
      FROM unnest(%(id)s::uuid[], %(service)s::integer[], %(version)s::text[], %(activation)s::uuid[], %(step)s::integer[],
                  %(state)s::text[], %(waiting_for)s::text[], %(line)s::text[], %(code)s::text[], %(reason)s::text[],
                  %(traceback)s::text[])
           AS wanted (id, service_id, version, activation, step, state, waiting_for, line, code, reason, traceback)
      JOIN service ON service.id = wanted.service_id AND service.host_id = %(host)s AND wanted.version = ANY (service.versions)
     WHERE NOT EXISTS (SELECT
                         FROM host
                        CROSS JOIN LATERAL (SELECT FROM instance WHERE host_id = host.id AND id = wanted.id LIMIT 1) AS elsewhere
                        WHERE host.id <> %(host)s)
        ON CONFLICT (host_id, id) DO UPDATE
       SET step = excluded.step, version = excluded.version, waiting_for = excluded.waiting_for, line = excluded.line,
           code = excluded.code,
           reason = excluded.reason, traceback = excluded.traceback, since = excluded.since,
           state = CASE WHEN known.state = 'cancelling' AND excluded.state = 'running' THEN 'cancelling' ELSE excluded.state END
    RETURNING 1
)
SELECT count(*) FROM written;


-- name: write_history
-- takes: instance uuid[], step integer[], record bytea[]
-- gives: written bigint
WITH written AS (
    INSERT INTO {history} (host_id, instance_id, step, record)
    SELECT %(host)s, recorded.*
      FROM unnest(%(instance)s::uuid[], %(step)s::integer[], %(record)s::bytea[]) AS recorded (instance_id, step, record)
    RETURNING 1
)
SELECT count(*) FROM written;


-- name: give_held
-- takes: instance uuid[], sequence bigint[], step integer[]
-- gives: given bigint
-- What was kept for later was given to the code in this step.
WITH given AS (
    UPDATE {held} AS held
       SET step = given.step
      FROM unnest(%(instance)s::uuid[], %(sequence)s::bigint[], %(step)s::integer[]) AS given (instance_id, sequence, step)
     WHERE held.ctid = ANY (ARRAY (SELECT mine.place
                                     FROM unnest(%(instance)s::uuid[], %(sequence)s::bigint[]) AS wanted (instance_id, sequence)
                                    CROSS JOIN LATERAL (SELECT kept.ctid AS place
                                                          FROM {held} AS kept
                                                         WHERE kept.host_id = %(host)s
                                                           AND kept.instance_id = wanted.instance_id
                                                           AND kept.sequence = wanted.sequence
                                                         LIMIT 1) AS mine))
       AND held.instance_id = given.instance_id AND held.sequence = given.sequence
    RETURNING 1
)
SELECT count(*) FROM given;


-- name: change_timers
-- takes: done_instance uuid[], done_number integer[], instance uuid[], number integer[], due_in interval[]
-- gives: changed bigint
-- Timers that have fired or that nobody waits for any more, and new ones.
WITH done AS (
    DELETE FROM {timer} AS timer
     USING unnest(%(done_instance)s::uuid[], %(done_number)s::integer[]) AS done (instance_id, number)
     WHERE timer.host_id = %(host)s AND timer.instance_id = done.instance_id AND timer.number = done.number
), made AS (
    INSERT INTO {timer} (host_id, instance_id, number, due_at)
    SELECT %(host)s, made.instance_id, made.number, clock() + made.due_in
      FROM unnest(%(instance)s::uuid[], %(number)s::integer[], %(due_in)s::interval[]) AS made (instance_id, number, due_in)
        ON CONFLICT (host_id, instance_id, number) DO UPDATE SET due_at = excluded.due_at, deaths = 0
    RETURNING 1
)
SELECT count(*) FROM made;


-- name: pause_timers
-- takes: instance uuid[]
-- gives: paused bigint
-- Nobody looks at the timers of suspended instances, however many there are. A statement of its own, after their new timers
-- are made.
WITH paused AS (
    UPDATE {timer} AS timer
       SET asleep = true
     WHERE timer.host_id = %(host)s AND timer.instance_id = ANY (%(instance)s::uuid[]) AND NOT timer.asleep
    RETURNING 1
)
SELECT count(*) FROM paused;


-- name: close_instances
-- takes: instance uuid[]
-- gives: closed bigint
-- Their convoys, together with their subscriptions and before anything is published: what comes from now on begins another.
WITH closed AS (
    DELETE FROM convoy
     WHERE convoy.instance_id = ANY (%(instance)s::uuid[]) AND convoy.host_id = %(host)s
       AND (SELECT true FROM {instance} AS mine WHERE mine.host_id = %(host)s AND mine.id = convoy.instance_id LIMIT 1)
    RETURNING 1
)
SELECT count(*) FROM closed;


-- name: pass_on
-- takes: ending uuid[], successor uuid[], left_instance uuid[], left_message uuid[]
-- gives: began uuid
-- Convoys end, and what they were given and did not take begins their next instances: with the same values, under the same
-- lock of their subscription, so that nothing slips between the two. What others have claimed is taken from them: their step
-- would find no instance. Claims are locked after instances, here as everywhere.
WITH pair AS (
    SELECT wanted.ending, wanted.successor, service.id AS service_id, service.version, service.subqueue
      FROM unnest(%(ending)s::uuid[], %(successor)s::uuid[]) AS wanted (ending, successor)
     CROSS JOIN LATERAL (SELECT instance.service_id
                           FROM {instance} AS instance
                          WHERE instance.host_id = %(host)s AND instance.id = wanted.ending
                          LIMIT 1) AS ending
      JOIN service ON service.id = ending.service_id
     WHERE NOT EXISTS (SELECT
                         FROM host
                        CROSS JOIN LATERAL (SELECT FROM instance WHERE host_id = host.id AND id = wanted.successor LIMIT 1)
                                   AS elsewhere
                        WHERE host.id <> %(host)s)
), from_held AS (
    DELETE FROM {held} AS held
     USING unnest(%(left_instance)s::uuid[], %(left_message)s::uuid[]) AS unclaimed (instance_id, message_id)
     WHERE held.host_id = %(host)s AND held.instance_id = unclaimed.instance_id AND held.message_id = unclaimed.message_id
       AND held.instance_id IN (SELECT ending FROM pair)
    RETURNING held.sequence, held.message_id, held.instance_id, held.subscription_id
), from_claimed AS (
    DELETE FROM {claimed} AS claimed
     USING pair
     WHERE claimed.host_id = %(host)s AND claimed.instance_id = pair.ending
    RETURNING claimed.sequence, claimed.message_id, claimed.instance_id, claimed.attempt, claimed.deaths, claimed.subscription_id
), from_queue AS (
    UPDATE {queue} AS queue
       SET instance_id = pair.successor
      FROM pair
     WHERE queue.instance_id = pair.ending
    RETURNING queue.sequence, queue.message_id, pair.ending AS instance_id
), from_scheduled AS (
    UPDATE {scheduled} AS scheduled
       SET instance_id = pair.successor
      FROM pair
     WHERE scheduled.instance_id = pair.ending
    RETURNING scheduled.sequence, scheduled.message_id, pair.ending AS instance_id
), requeued AS (
    INSERT INTO {queue} (host_id, sequence, subqueue, priority, message_id, subscription_id, service_id, instance_id, attempt, deaths)
    SELECT %(host)s, found.sequence, pair.subqueue, 0, found.message_id, found.subscription_id, pair.service_id, pair.successor,
           found.attempt, found.deaths
      FROM (SELECT sequence, message_id, instance_id, subscription_id, 0 AS attempt, 0 AS deaths FROM from_held
             UNION ALL
            SELECT sequence, message_id, instance_id, subscription_id, attempt, deaths FROM from_claimed) AS found
      JOIN pair ON pair.ending = found.instance_id
), unclaimed AS (
    SELECT sequence, message_id, instance_id FROM from_held
     UNION ALL
    SELECT sequence, message_id, instance_id FROM from_claimed
     UNION ALL
    SELECT * FROM from_queue
     UNION ALL
    SELECT * FROM from_scheduled
), begun AS (
    SELECT DISTINCT ON (pair.ending) pair.*, unclaimed.message_id AS activation
      FROM unclaimed
      JOIN pair ON pair.ending = unclaimed.instance_id
     ORDER BY pair.ending, unclaimed.sequence
), inserted AS (
    INSERT INTO {instance} (host_id, id, service_id, version, activation)
    SELECT %(host)s, successor, service_id, version, activation FROM begun
        ON CONFLICT (host_id, id) DO NOTHING -- an earlier look has begun it
), waits AS (
    UPDATE instance_subscription AS waiting
       SET instance_id = (SELECT successor FROM begun WHERE begun.ending = waiting.instance_id)
     WHERE waiting.id = ANY (ARRAY (SELECT mine.id
                                      FROM begun AS ended
                                     CROSS JOIN LATERAL (SELECT known.id
                                                           FROM instance_subscription AS known
                                                          WHERE known.instance_id = ended.ending AND known.host_id = %(host)s
                                                            AND (SELECT true
                                                                   FROM convoy
                                                                  WHERE convoy.hash = known.hash
                                                                    AND convoy.instance_id = ended.ending
                                                                  LIMIT 1)
                                                         OFFSET 0) AS mine))
), open AS (
    UPDATE convoy
       SET instance_id = (SELECT successor FROM begun WHERE begun.ending = convoy.instance_id)
     WHERE convoy.hash = ANY (ARRAY (SELECT mine.hash
                                       FROM begun AS ended
                                      CROSS JOIN LATERAL (SELECT hash
                                                            FROM convoy AS known
                                                           WHERE known.instance_id = ended.ending AND known.host_id = %(host)s
                                                          OFFSET 0) AS mine))
)
SELECT successor FROM begun;


-- name: list_unpassed
-- takes: instance uuid[]
-- gives: instance uuid
-- Instances for which references are somewhere. A reference that is being moved, by a claim or by the release of the dead, is
-- seen where it was, whereas a statement that takes it waits for the move and then does not find it.
SELECT wanted.id
  FROM unnest(%(instance)s::uuid[]) AS wanted (id)
 WHERE (SELECT true FROM {queue} AS queue WHERE queue.instance_id = wanted.id LIMIT 1) IS NOT NULL
    OR (SELECT true FROM {claimed} AS claimed WHERE claimed.instance_id = wanted.id LIMIT 1) IS NOT NULL
    OR (SELECT true FROM {scheduled} AS scheduled WHERE scheduled.instance_id = wanted.id LIMIT 1) IS NOT NULL;


-- name: end_instances
-- takes: instance uuid[], left_instance uuid[], left_message uuid[]
-- gives: ended bigint, dropped integer, moved bigint
-- Nothing is left of instances but messages that they held and that nobody took: these are suspended. The others lose a
-- reference.
WITH ended AS (
    DELETE FROM {instance}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                               FROM unnest(%(instance)s::uuid[]) AS wanted (id)
                              CROSS JOIN LATERAL (SELECT known.ctid AS place
                                                    FROM {instance} AS known
                                                   WHERE known.host_id = %(host)s AND known.id = wanted.id
                                                  OFFSET 0) AS mine))
    RETURNING id, service_id
), forgotten AS (
    DELETE FROM {history}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                               FROM unnest(%(instance)s::uuid[]) AS wanted (id)
                              CROSS JOIN LATERAL (SELECT known.ctid AS place
                                                    FROM {history} AS known
                                                   WHERE known.host_id = %(host)s AND known.instance_id = wanted.id
                                                  OFFSET 0) AS mine))
), stopped AS (
    DELETE FROM {timer}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                               FROM unnest(%(instance)s::uuid[]) AS wanted (id)
                              CROSS JOIN LATERAL (SELECT known.ctid AS place
                                                    FROM {timer} AS known
                                                   WHERE known.host_id = %(host)s AND known.instance_id = wanted.id
                                                  ORDER BY known.number -- else it may go by the times at which they are due
                                                  OFFSET 0) AS mine))
), closed AS (
    DELETE FROM convoy WHERE instance_id = ANY (%(instance)s::uuid[]) AND host_id = %(host)s
), released AS (
    DELETE FROM {held}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                               FROM unnest(%(instance)s::uuid[]) AS wanted (id)
                              CROSS JOIN LATERAL (SELECT known.ctid AS place
                                                    FROM {held} AS known
                                                   WHERE known.host_id = %(host)s AND known.instance_id = wanted.id
                                                  OFFSET 0) AS mine))
    RETURNING sequence, message_id, instance_id
), unclaimed AS (
    SELECT released.*, ended.service_id
      FROM released
      JOIN ended ON ended.id = released.instance_id
     WHERE (released.instance_id, released.message_id)
           IN (SELECT * FROM unnest(%(left_instance)s::uuid[], %(left_message)s::uuid[]))
), moving AS (
    SELECT array_agg(ROW (%(host)s, sequence, 0, message_id, NULL, service_id, 0, 0, instance_id, 0, false, 'suspended', NULL,
                          'discarded', 'instance-ended', 'The instance ended without taking this message.', clock(),
                          'discarded', NULL)::moving) AS rows
      FROM unclaimed
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT %(host)s, 'completed', NULL::smallint, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(ended.service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM released
      JOIN ended ON ended.id = released.instance_id
     WHERE sequence NOT IN (SELECT sequence FROM unclaimed)
       AND ended.service_id NOT IN (SELECT service.id FROM service WHERE service.track = 'off')
     GROUP BY sequence >> 12
)
SELECT (SELECT count(*) FROM ended),
       (SELECT drop_references(array_agg(message_id)) FROM released WHERE sequence NOT IN (SELECT sequence FROM unclaimed)),
       (SELECT count(*) FROM moving, move_references(moving.rows));


-- name: restart_instances
-- takes: instance uuid[], kept_instance uuid[], kept_message uuid[]
-- gives: dropped integer
-- Instances begin anew under their ids: of what they held these messages are kept, and nothing of their history.
WITH forgotten AS (
    DELETE FROM {history}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                               FROM unnest(%(instance)s::uuid[]) AS wanted (id)
                              CROSS JOIN LATERAL (SELECT known.ctid AS place
                                                    FROM {history} AS known
                                                   WHERE known.host_id = %(host)s AND known.instance_id = wanted.id
                                                  OFFSET 0) AS mine))
), released AS (
    DELETE FROM {held} AS held
     WHERE held.ctid = ANY (ARRAY (SELECT mine.place
                               FROM unnest(%(instance)s::uuid[]) AS wanted (id)
                              CROSS JOIN LATERAL (SELECT known.ctid AS place
                                                    FROM {held} AS known
                                                   WHERE known.host_id = %(host)s AND known.instance_id = wanted.id
                                                  OFFSET 0) AS mine))
       AND held.step IS NOT NULL
       AND (held.instance_id, held.message_id) NOT IN (SELECT * FROM unnest(%(kept_instance)s::uuid[], %(kept_message)s::uuid[]))
    RETURNING sequence, message_id, instance_id
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT %(host)s, 'completed', NULL::smallint, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service.id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM released
     CROSS JOIN LATERAL (SELECT known.service_id
                           FROM {instance} AS known
                          WHERE known.host_id = %(host)s AND known.id = released.instance_id
                          LIMIT 1) AS instance
      JOIN service ON service.id = instance.service_id AND service.track <> 'off'
     GROUP BY sequence >> 12
)
SELECT drop_references(array_agg(message_id)) FROM released;


-- name: load_instances
-- What is known of instances; of one that has done no step whether it waits already, since who published its first message
-- subscribed it.
SELECT instance.*,
       instance.step > 0 OR (SELECT true
                               FROM instance_subscription AS waiting
                              WHERE waiting.instance_id = instance.id AND waiting.host_id = %(host)s
                              LIMIT 1) IS NOT NULL AS subscribed
  FROM unnest(%(id)s::uuid[]) AS wanted (id)
 CROSS JOIN LATERAL (SELECT known.id, known.service_id, known.version, known.activation, known.step, known.state, known.code
                       FROM {instance} AS known
                      WHERE known.host_id = %(host)s AND known.id = wanted.id
                      LIMIT 1) AS instance;


-- name: load_history
SELECT done.*
  FROM unnest(%(id)s::uuid[]) AS wanted (id)
 CROSS JOIN LATERAL (SELECT history.instance_id, history.step, history.record
                       FROM {history} AS history
                      WHERE history.host_id = %(host)s AND history.instance_id = wanted.id
                     OFFSET 0) AS done
 ORDER BY done.instance_id, done.step;


-- name: load_parked
-- What instances are to be given: it came while they were suspended.
SELECT parked.*
  FROM unnest(%(id)s::uuid[]) AS wanted (id)
 CROSS JOIN LATERAL (SELECT held.instance_id, held.sequence, held.message_id, held.subscription_id
                       FROM {held} AS held
                      WHERE held.host_id = %(host)s AND held.instance_id = wanted.id AND held.step IS NULL
                     OFFSET 0) AS parked
 ORDER BY parked.instance_id, parked.sequence;


-- name: load_held
-- takes: instance uuid[], limit bigint
-- gives: id uuid, context text, part uuid, name text, body bytea, fragments integer
-- The messages that instances of the host hold.
SELECT message.id, message.context::text, part.id, part.name, part.body, part.fragments
  FROM (SELECT DISTINCT mine.message_id
          FROM unnest(%(instance)s::uuid[]) AS wanted (id)
         CROSS JOIN LATERAL (SELECT known.message_id
                               FROM {held} AS known
                              WHERE known.host_id = %(host)s AND known.instance_id = wanted.id
                             OFFSET 0) AS mine) AS held
 CROSS JOIN LATERAL (SELECT id, context, parts FROM message WHERE id = held.message_id LIMIT 1) AS message
  LEFT JOIN LATERAL unnest(message.parts) WITH ORDINALITY AS place (part_id, number) ON true
  LEFT JOIN LATERAL (SELECT id, name, CASE WHEN size <= %(limit)s THEN body END AS body, fragments
                       FROM part
                      WHERE id = place.part_id
                      LIMIT 1) AS part ON true
 ORDER BY message.id, place.number;


-- name: load_held_piece
-- takes: instance uuid[], message uuid, part uuid, number integer
-- gives: body bytea
-- A part, or with a number one of its fragments, of a message that one of these instances of the host holds.
SELECT CASE WHEN %(number)s::integer IS NULL
            THEN (SELECT body FROM part WHERE id = %(part)s::uuid)
            ELSE (SELECT body FROM fragment WHERE part_id = %(part)s::uuid AND number = %(number)s::integer)
       END
  FROM message
 WHERE message.id = %(message)s::uuid AND %(part)s::uuid = ANY (message.parts)
   AND (SELECT true
          FROM {held} AS held
         WHERE held.host_id = %(host)s AND held.instance_id = ANY (%(instance)s::uuid[]) AND held.message_id = message.id
         LIMIT 1);


-- name: list_due
-- Timers whose time has come, with the time; those of suspended instances are asleep.
SELECT instance_id, number, clock(), deaths
  FROM {timer}
 WHERE host_id = %(host)s AND NOT asleep AND due_at <= clock()
 ORDER BY due_at
 LIMIT %(limit)s;


-- name: next_due
-- In how many seconds the next timer is due; nothing if there is none.
SELECT date_part('epoch', due_at - clock())
  FROM {timer}
 WHERE host_id = %(host)s AND NOT asleep
 ORDER BY due_at
 LIMIT 1;


-- name: list_instances
-- Running instances, the oldest first, with the context of the message that began each, and the values by which it is
-- correlated. What waits for a response waits by a token, which is for nobody to see. Where all are asked for, long texts are
-- cut: a host has written them.
SELECT instance.id, instance.host_id, service.name AS orchestration, service.application, host.name AS host, instance.version,
       instance.step, instance.state, instance.since, instance.activated_at, left(instance.waiting_for, shown.most) AS waiting_for,
       left(instance.line, shown.most) AS line, instance.code, left(instance.reason, shown.most) AS reason,
       left(instance.traceback, shown.most) AS traceback, instance.activation, message.context,
       (SELECT json_agg(json_build_array(found.name, found.property, found.value) ORDER BY found.id)
          FROM (SELECT waiting.id, correlation.name, correlation.property, waiting.value
                  FROM shown_waiting AS waiting
                  JOIN correlation ON correlation.id = waiting.correlation_id
                 WHERE waiting.instance_id = instance.id AND waiting.host_id = instance.host_id AND correlation.name IS NOT NULL
                 ORDER BY waiting.id
                 LIMIT 100) AS found)
       AS correlated
  FROM instance
  JOIN service ON service.id = instance.service_id
  JOIN host ON host.id = instance.host_id
  LEFT JOIN shown_message AS message ON message.id = instance.activation
 CROSS JOIN LATERAL (SELECT CASE WHEN %(id)s::uuid[] IS NULL THEN 4000 ELSE 1000000 END AS most) AS shown
 WHERE %(id)s::uuid[] IS NULL OR instance.id = ANY (%(id)s::uuid[])
 ORDER BY instance.id
 LIMIT %(limit)s;


-- name: count_versions
-- The living instances of an orchestration by the version of their code.
SELECT instance.version, count(*)
  FROM instance
  JOIN service ON service.id = instance.service_id
 WHERE service.name = %(name)s
 GROUP BY instance.version
 ORDER BY instance.version;


-- name: sample_instances
-- Instances that do not run this version: first one of every place in the code, then a second one of each, and so on.
SELECT host_id, id
  FROM (SELECT instance.host_id, instance.id,
               row_number() OVER (PARTITION BY instance.version, instance.step, instance.line ORDER BY instance.id) AS place
          FROM instance
          JOIN service ON service.id = instance.service_id
         WHERE service.name = %(name)s AND instance.version <> %(version)s) AS living
 ORDER BY place, id
 LIMIT %(limit)s;


-- name: list_records
-- The history of an instance, for whoever may read the bodies of its application: the console works for people with fewer rights
-- as the owner, for whom there are no policies. A host has written them: records beyond 64 MB are empty, which nobody can read.
SELECT step,
       CASE WHEN sum(octet_length(record)) OVER (ORDER BY step) <= 67108864 THEN record ELSE '' END AS record
  FROM history
 WHERE host_id = %(host)s AND instance_id = %(id)s
   AND (SELECT may_do('bodies', service.application)
          FROM instance
          JOIN service ON service.id = instance.service_id
         WHERE instance.host_id = %(host)s AND instance.id = %(id)s)
 ORDER BY step;


-- name: list_held
-- The messages that an instance holds, and in which step each was given to its code. There may be many: of a long context
-- nobody is told the type.
SELECT held.message_id, held.step, CASE WHEN octet_length(message.context) <= 65536 THEN message.context END AS context
  FROM held
  LEFT JOIN shown_message AS message ON message.id = held.message_id
 WHERE held.host_id = %(host)s AND held.instance_id = %(id)s
 ORDER BY held.sequence;


-- name: list_timers
SELECT number, due_at FROM timer WHERE host_id = %(host)s AND instance_id = %(id)s ORDER BY due_at;


-- name: resume_instances
-- takes: id uuid[]
-- gives: id uuid, host_id smallint, recorded bigint
-- Suspended instances go on: they are woken by a timer that is due. Their other timers are looked at again, and begin anew with
-- their deaths. Those of an application that was undeployed stay suspended.
WITH resumed AS (
    UPDATE instance
       SET state = 'running', reason = NULL, traceback = NULL, since = clock()
     WHERE id = ANY (%(id)s::uuid[]) AND state = 'suspended'
       AND may_do('operator', (SELECT service.application FROM service WHERE service.id = instance.service_id))
       AND service_id IN (SELECT service.id
                            FROM service
                            JOIN application ON application.name = service.application
                           WHERE application.deployed)
    RETURNING host_id, id, service_id
), awake AS (
    UPDATE timer
       SET asleep = false, deaths = 0
      FROM resumed
     WHERE timer.host_id = resumed.host_id AND timer.instance_id = resumed.id AND timer.number <> 0
), woken AS (
    INSERT INTO timer (host_id, instance_id, number, due_at)
    SELECT host_id, id, 0, clock() FROM resumed
        ON CONFLICT (host_id, instance_id, number) DO UPDATE
                SET due_at = excluded.due_at, asleep = false, deaths = 0
)
SELECT resumed.id, resumed.host_id,
       audit('resume', resumed.id::text, jsonb_build_object('state', 'suspended'), jsonb_build_object('state', 'running'),
             'done', NULL, resumed.service_id)
  FROM resumed;


-- name: cancel_instances
-- takes: id uuid[]
-- gives: id uuid, host_id smallint, recorded bigint
-- Instances are to end with compensation: they are woken by a timer that is due.
WITH cancelled AS (
    UPDATE instance
       SET state = 'cancelling', code = NULL, reason = NULL, traceback = NULL, since = clock()
     WHERE id = ANY (%(id)s::uuid[])
       AND may_do('operator', (SELECT service.application FROM service WHERE service.id = instance.service_id))
    RETURNING host_id, id, service_id
), awake AS (
    UPDATE timer
       SET asleep = false, deaths = 0
      FROM cancelled
     WHERE timer.host_id = cancelled.host_id AND timer.instance_id = cancelled.id AND timer.number <> 0
), woken AS (
    INSERT INTO timer (host_id, instance_id, number, due_at)
    SELECT host_id, id, 0, clock() FROM cancelled
        ON CONFLICT (host_id, instance_id, number) DO UPDATE
                SET due_at = excluded.due_at, asleep = false, deaths = 0
)
SELECT cancelled.id, cancelled.host_id,
       audit('cancel', cancelled.id::text, NULL, jsonb_build_object('state', 'cancelling'), 'done', NULL, cancelled.service_id)
  FROM cancelled;


-- name: lock_ending
-- Instances that are to end without running any code. Whoever does a step of one finishes first.
SELECT host_id, id, service_id, state FROM instance WHERE id = ANY (%(id)s::uuid[]) ORDER BY id FOR UPDATE;


-- name: list_subscribed_by
-- By which correlations of orchestrations instances are given messages.
SELECT waiting.id, correlation.name
  FROM instance_subscription AS waiting
  JOIN correlation ON correlation.id = waiting.correlation_id
 WHERE waiting.id = ANY (%(id)s::bigint[]);


-- name: load_version
SELECT bundle, packages FROM version_definition WHERE digest = %(digest)s;


-- name: list_addresses
-- By what ports, groups and orchestrations are named in a message, enlisted or not.
SELECT 'port' AS kind, name, transport_id AS id FROM service WHERE class <> 'messaging isolated' AND port_id IS NULL
 UNION ALL
SELECT 'group', name, group_id FROM send_port_group;
