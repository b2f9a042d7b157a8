-- What becomes of claimed references, and of those that are due or that a dead host instance left.


-- name: take_claimed
-- A part of other statements, which write it as its name in braces. Delete claimed references, each by its sequence and, if
-- one is given, by its claim: what has come back and was claimed anew since is another claim, made by another transaction,
-- and is left alone. Only rows still claimed by this instance count: after it was taken for dead, its references are
-- somebody else's.
-- They are found one by one in the index and deleted by place, which nothing but the place may decide: else a server may
-- read all that is claimed, and all that a reader who stays for long keeps from being cleaned away.
DELETE FROM {claimed}
     WHERE ctid = ANY (ARRAY (SELECT mine.place
                                FROM unnest(%(sequence)s::bigint[], %(claim)s::bigint[]) AS wanted (sequence, claim),
                                     LATERAL (SELECT living.ctid AS place
                                                FROM {claimed} AS living
                                               WHERE living.host_id = %(host)s
                                                 AND living.sequence = wanted.sequence
                                                 AND (wanted.claim IS NULL OR wanted.claim = 0
                                                      OR wanted.claim = living.xmin::text::bigint)
                                               LIMIT 1) AS mine))
       AND claimed_by = %(host_instance)s


-- name: complete
-- takes: host_instance integer, sequence bigint[], claim bigint[]
-- gives: dropped integer
-- Settle delivered references: most settlements are this and nothing else.
WITH settled AS (
    {take_claimed}
    RETURNING sequence, service_id, message_id, attempt, claimed_at, instance_id
), counted AS (
    INSERT INTO delivery (service_id, count)
    SELECT service_id, count(*) FROM settled GROUP BY service_id
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, claimed_at, block, sequence, message_id, service_id, instance_id)
    SELECT %(host)s, 'delivered', (attempt + 1)::smallint, claimed_at, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM settled
     WHERE service_id NOT IN (SELECT service.id FROM service WHERE service.track = 'off')
     GROUP BY sequence >> 12, attempt, claimed_at
)
SELECT drop_references(array_agg(message_id)) FROM settled;


-- name: settle
-- takes: host_instance integer, sequence bigint[], claim bigint[], becomes text[], after interval[], tried boolean[],
--        kind text[], code text[], reason text[]
-- gives: settled bigint[], dropped integer, moved bigint
-- Settle claimed references, each as `becomes` says: delivered; answered, where what the partner answered is published;
-- replaced, where something is published in its place; scheduled for another attempt; suspended; or queued again. In an ordered subqueue the one to be tried again keeps its place, and blocks
-- it. What was tried counts an attempt, and has shown that it does not end the process. Of each reference one outcome counts,
-- however many are given: two would take two references from its message, which others may still wait for.
WITH settled AS (
    {take_claimed}
    RETURNING *
), outcome AS (
    SELECT DISTINCT ON (settled.sequence)
           settled.*,
           CASE WHEN wanted.becomes IN ('delivered', 'answered', 'replaced', 'scheduled', 'suspended') THEN wanted.becomes
                ELSE 'queued' END AS becomes,
           wanted.after, wanted.tried, wanted.kind, wanted.code, wanted.reason
      FROM settled
      JOIN unnest(%(sequence)s::bigint[], %(becomes)s::text[], %(after)s::interval[], %(tried)s::boolean[],
                  %(kind)s::text[], %(code)s::text[], %(reason)s::text[])
           AS wanted (sequence, becomes, after, tried, kind, code, reason) USING (sequence)
     ORDER BY settled.sequence
), counted AS (
    INSERT INTO delivery (service_id, count, retried, suspended)
    SELECT service_id, count(*) FILTER (WHERE becomes IN ('delivered', 'answered')),
           count(*) FILTER (WHERE becomes = 'scheduled'), count(*) FILTER (WHERE becomes = 'suspended')
      FROM outcome
     WHERE becomes IN ('delivered', 'answered', 'suspended') OR becomes = 'scheduled' AND tried
     GROUP BY service_id
), tracked AS (
    INSERT INTO track_settled (host_id, event, attempt, claimed_at, block, sequence, message_id, service_id, instance_id)
    SELECT %(host)s, becomes, (attempt + 1)::smallint, claimed_at, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM outcome
     WHERE becomes IN ('delivered', 'answered', 'replaced')
       AND service_id NOT IN (SELECT service.id FROM service WHERE service.track = 'off')
     GROUP BY becomes, sequence >> 12, attempt, claimed_at
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue,
                          instance_id, deaths, tried,
                          CASE WHEN becomes = 'scheduled' AND subqueue > 0 THEN 'queued' ELSE becomes END,
                          clock() + after, kind, code, reason, clock(),
                          CASE WHEN becomes = 'suspended' THEN 'suspended'
                               WHEN becomes = 'queued' THEN 'given-back'
                               WHEN tried THEN 'retried'
                               ELSE 'postponed' END,
                          claimed_at)::moving) AS rows
      FROM outcome
     WHERE becomes IN ('scheduled', 'suspended', 'queued')
)
SELECT array_agg(sequence),
       drop_references(array_agg(message_id) FILTER (WHERE becomes IN ('delivered', 'answered', 'replaced'))),
       (SELECT count(*) FROM moving, move_references(moving.rows))
  FROM outcome;


-- name: lock_claimed
-- takes: host_instance integer, sequence bigint[], claim bigint[]
-- gives: locked bigint
-- Which of these claims an instance still has. Nobody else settles or frees them until the commit.
SELECT mine.sequence
  FROM unnest(%(sequence)s::bigint[], %(claim)s::bigint[]) AS wanted (sequence, claim),
       LATERAL (SELECT living.sequence
                  FROM {claimed} AS living
                 WHERE living.host_id = %(host)s
                   AND living.sequence = wanted.sequence
                   AND living.claimed_by = %(host_instance)s
                   AND (wanted.claim = 0 OR wanted.claim = living.xmin::text::bigint)
                 LIMIT 1
                   FOR UPDATE) AS mine;


-- name: note_deliveries
-- What an instance is about to deliver of that which a dead one had in hand: if it dies too, one of these may be why.
UPDATE host_instance SET delivering = %(sequence)s::bigint[] WHERE id = %(host_instance)s RETURNING id;


-- name: note_steps
-- takes: host_instance integer, instance uuid[], alone uuid[]
-- gives: noted integer
-- The instances of orchestrations whose timers a host instance has in hand, with no message that it claimed. If it dies, one
-- of these may be why.
UPDATE host_instance
   SET stepping = ARRAY (SELECT DISTINCT timer.instance_id
                           FROM {timer} AS timer
                          WHERE timer.host_id = %(host)s AND timer.instance_id = ANY (%(instance)s::uuid[])),
       stepping_alone = %(alone)s::uuid[]
 WHERE host_instance.id = %(host_instance)s AND host_instance.host_id = %(host)s
RETURNING host_instance.id;


-- name: requeue_due
-- takes: nothing
-- gives: count bigint, lowest bigint, moved bigint
-- Bring back the deliveries whose next attempt is due.
WITH due AS (
    DELETE FROM {scheduled}
     WHERE ctid = ANY (ARRAY(SELECT ctid
                               FROM {scheduled}
                              WHERE host_id = %(host)s AND due_at <= clock()
                              ORDER BY due_at
                              LIMIT 1000
                                FOR UPDATE SKIP LOCKED))
    RETURNING *
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                          0, false, 'queued', NULL, NULL, NULL, NULL, clock(), NULL, NULL)::moving) AS rows
      FROM due
)
SELECT count(*), min(sequence), (SELECT count(*) FROM moving, move_references(moving.rows)) FROM due;


-- name: release_dead
-- takes: grace interval, lock integer
-- gives: count bigint, lowest bigint, moved bigint
-- Free the references, leases and waiting subscriptions of host instances that are gone. An instance lives while a session
-- holds its advisory lock; getting that lock proves it is gone. Right after a server start the living need a moment to
-- come back, hence the grace; a server that has started in the future had its clock set back since, and the grace is
-- over. What a process had in hand that ended otherwise than by losing its connection, or by
-- stopping, may have ended it: it keeps its attempts and counts a death, another one if it was noted as being delivered.
-- So do timers, which nobody claims: who had them in hand is noted.
WITH dead AS MATERIALIZED (
    SELECT id, delivering, stepping, stepping_alone, state NOT IN ('lost', 'stopping') AS died
      FROM host_instance
     WHERE host_id = %(host)s
       AND clock() NOT BETWEEN pg_postmaster_start_time() AND pg_postmaster_start_time() + %(grace)s
       AND pg_try_advisory_xact_lock(%(lock)s, id)
), freed AS (
    DELETE FROM {claimed}
     WHERE host_id = %(host)s
       AND (claimed_by IN (SELECT id FROM dead) OR claimed_by NOT IN (SELECT id FROM host_instance))
    RETURNING *
), forgotten AS (
    DELETE FROM host_instance
     USING dead
     WHERE host_instance.id = dead.id
    RETURNING dead.died, dead.stepping, dead.stepping_alone
), suspected AS (
    -- By whoever takes the row of the dead away: another one, who saw it too, would count the same death again.
    UPDATE {timer}
       SET deaths = least(greatest(1, deaths + (SELECT count(*)
                                                  FROM forgotten
                                                 WHERE died AND instance_id = ANY (forgotten.stepping_alone))), 32767)
     WHERE host_id = %(host)s AND due_at <= clock()
       AND instance_id = ANY (ARRAY (SELECT unnest(stepping) FROM forgotten WHERE died))
), stale AS (
    SELECT service_id, held_by
      FROM subqueue_lease
     WHERE host_id = %(host)s
       AND held_by IS NOT NULL
       AND (held_by IN (SELECT id FROM dead) OR held_by NOT IN (SELECT id FROM host_instance))
), released AS (
    -- Compared with what was seen: a new holder, whom this snapshot does not know, keeps it.
    UPDATE subqueue_lease
       SET held_by = NULL
      FROM stale
     WHERE subqueue_lease.service_id = stale.service_id AND subqueue_lease.held_by = stale.held_by
), unsubscribed AS (
    DELETE FROM instance_subscription
     WHERE host_id = %(host)s
       AND bound_to IS NOT NULL
       AND (bound_to IN (SELECT id FROM dead) OR bound_to NOT IN (SELECT id FROM host_instance))
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                          CASE WHEN dead.died IS NOT TRUE THEN deaths
                               WHEN sequence = ANY (dead.delivering) THEN deaths + 1
                               ELSE greatest(deaths, 1) END,
                          false, 'queued', NULL, NULL, NULL, NULL, clock(),
                          CASE WHEN dead.died IS TRUE THEN 'died' ELSE 'given-back' END, claimed_at)::moving) AS rows
      FROM freed
      LEFT JOIN dead ON dead.id = freed.claimed_by
)
SELECT count(*), min(sequence), (SELECT count(*) FROM moving, move_references(moving.rows)) FROM freed;


-- name: suspend_orphans
-- takes: nothing
-- gives: moved bigint
-- References that only one host instance may take, and it is gone: nobody else waits for them. A statement of its own,
-- after the waiting subscriptions were deleted: it must see what a publisher that held them gave meanwhile.
WITH orphan AS (
    DELETE FROM {queue}
     WHERE host_id = %(host)s AND subqueue < 0 AND subqueue > -2147483648 -- which is where orchestrations have theirs
       AND -subqueue::bigint NOT IN (SELECT id FROM host_instance)
    RETURNING *
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, 0, instance_id, 0, false,
                          'suspended', NULL, 'response', 'nobody-waits', 'The process that waited for this response is gone.',
                          clock(), 'suspended', NULL)::moving) AS rows
      FROM orphan
)
SELECT count(*) FROM moving, move_references(moving.rows);


-- name: any_dead
-- Whether an instance of the host is gone, or held a subqueue and is gone since longer. References that an instance claimed
-- after it was taken for dead are not looked for here: that takes a look at all that is claimed.
SELECT EXISTS (SELECT
                 FROM host_instance
                WHERE host_id = %(host)s
                  AND clock() NOT BETWEEN pg_postmaster_start_time() AND pg_postmaster_start_time() + %(grace)s
                  AND pg_try_advisory_xact_lock(%(lock)s, id))
    OR EXISTS (SELECT
                 FROM subqueue_lease
                WHERE host_id = %(host)s AND held_by IS NOT NULL AND held_by NOT IN (SELECT id FROM host_instance));
