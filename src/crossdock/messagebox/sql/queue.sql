-- Claiming references: from the shared queue of a host, and in order from the queue of one port.


-- name: dequeue
-- takes: host_instance integer, subqueue integer[], priority smallint[], mark bigint[], services integer[], only
--        boolean, limit integer
-- gives: priority smallint, sequence bigint, message_id uuid, subscription_id bigint, service_id integer, attempt
--        smallint, subqueue integer, instance_id uuid, claim bigint, deaths smallint, claimed_at double precision
-- Claim ready references for one host instance: move them, so that no row is updated in place and no transaction stays
-- open while they are delivered. SKIP LOCKED lets instances share the queue. Each scan begins at the mark of its subqueue and
-- priority, past the rows that are gone but that an open reader keeps from being cleaned away.
WITH ready AS (
    DELETE FROM {queue}
     WHERE ctid = ANY (ARRAY(SELECT found.place
                               FROM unnest(%(subqueue)s::integer[], %(priority)s::smallint[], %(mark)s::bigint[])
                                    AS start (subqueue, priority, sequence),
                                    LATERAL (SELECT ctid AS place
                                               FROM {queue}
                                              WHERE host_id = %(host)s
                                                AND subqueue = start.subqueue
                                                AND priority = start.priority
                                                AND sequence >= start.sequence
                                                AND (service_id = ANY (%(services)s::integer[])) = %(only)s
                                              ORDER BY sequence
                                              LIMIT %(limit)s
                                                FOR UPDATE SKIP LOCKED) AS found
                              LIMIT %(limit)s))
    RETURNING *
)
INSERT INTO {claimed} (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                       deaths, claimed_by, claimed_at)
SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
       deaths, %(host_instance)s, clock()
  FROM ready
RETURNING priority, sequence, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
          xmin::text::bigint AS claim, deaths, date_part('epoch', claimed_at) AS claimed_at;


-- name: dequeue_few
-- takes: host_instance integer, subqueue integer[], priority smallint[], mark bigint[], services integer[], only
--        boolean, limit integer, held bigint
-- gives: priority smallint, sequence bigint, message_id uuid, subscription_id bigint, service_id integer, attempt
--        smallint, subqueue integer, instance_id uuid, claim bigint, deaths smallint, claimed_at double precision,
--        context text, name text, body bytea
-- The same as dequeue, with the messages, where they have one small part: for a few references another round trip would take
-- longer than sending a body twice.
WITH ready AS (
    DELETE FROM {queue}
     WHERE ctid = ANY (ARRAY(SELECT found.place
                               FROM unnest(%(subqueue)s::integer[], %(priority)s::smallint[], %(mark)s::bigint[])
                                    AS start (subqueue, priority, sequence),
                                    LATERAL (SELECT ctid AS place
                                               FROM {queue}
                                              WHERE host_id = %(host)s
                                                AND subqueue = start.subqueue
                                                AND priority = start.priority
                                                AND sequence >= start.sequence
                                                AND (service_id = ANY (%(services)s::integer[])) = %(only)s
                                              ORDER BY sequence
                                              LIMIT %(limit)s
                                                FOR UPDATE SKIP LOCKED) AS found
                              LIMIT %(limit)s))
    RETURNING *
), taken AS (
    INSERT INTO {claimed} (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue,
                           instance_id, deaths, claimed_by, claimed_at)
    SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
           deaths, %(host_instance)s, clock()
      FROM ready
    RETURNING priority, sequence, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
              xmin::text::bigint AS claim, deaths, date_part('epoch', claimed_at) AS claimed_at
)
SELECT taken.*, message.context, message.name, message.body
  FROM taken
  LEFT JOIN LATERAL (SELECT context::text, part.name, part.body
                       FROM message, LATERAL (SELECT name, body
                                                FROM part
                                               WHERE id = message.parts[1] AND size <= %(held)s AND fragments = 0
                                               LIMIT 1) AS part
                      WHERE message.id = taken.message_id AND message.part_count = 1
                      LIMIT 1) AS message ON true;


-- name: sweep
-- The lowest living sequence of each priority.
SELECT ARRAY(SELECT coalesce((SELECT sequence
                                FROM {queue}
                               WHERE host_id = %(host)s AND subqueue = %(shared)s AND priority = level.priority
                                 AND (service_id = ANY (%(services)s::integer[])) = %(only)s
                               ORDER BY sequence
                               LIMIT 1), 9223372036854775807)
               FROM unnest(%(priority)s::smallint[]) AS level (priority));


-- name: busy
-- Whether anything of a host is ready or claimed, or a timer is due. What waits behind a failed one in an ordered subqueue is
-- not ready. In order, so that the index is used: a plain EXISTS may read the whole table, and all of it may be rows that are
-- gone.
SELECT (SELECT true
          FROM {queue}
         WHERE host_id = %(host)s AND subqueue <= 0
         ORDER BY subqueue, priority, sequence
         LIMIT 1) IS NOT NULL
    OR (SELECT true FROM {claimed} WHERE host_id = %(host)s ORDER BY sequence LIMIT 1) IS NOT NULL
    OR EXISTS (SELECT
                 FROM subqueue_lease
                WHERE (blocked_until IS NULL OR blocked_until <= clock())
                  AND (SELECT true
                         FROM {queue} AS queue
                        WHERE queue.host_id = %(host)s AND queue.subqueue = subqueue_lease.service_id AND queue.subqueue > 0
                        ORDER BY queue.sequence
                        LIMIT 1) IS NOT NULL)
    OR (SELECT true
          FROM {timer} AS timer
         WHERE timer.host_id = %(host)s AND timer.due_at <= clock()
           AND EXISTS (SELECT
                         FROM {instance} AS instance
                        WHERE instance.host_id = %(host)s AND instance.id = timer.instance_id AND instance.state <> 'suspended')
         ORDER BY timer.due_at
         LIMIT 1) IS NOT NULL;


-- name: take_lease
-- takes: host_instance integer, excluding integer[]
-- gives: service_id integer
-- Take the lease of one ordered service that has work, is not blocked and that nobody holds; none of those that this
-- instance has not heard it has given up. Whoever was held least recently is the first: each subqueue gets its turn. It goes
-- to the end also where the clock was set back: else it would be the first again, and the others would wait for the clock.
UPDATE subqueue_lease
   SET held_by = %(host_instance)s, blocked_until = NULL, reason = NULL,
       claim = pg_current_xact_id()::text::bigint & 4294967295, -- as the rows that are claimed under it have it
       held_at = greatest(clock(), (SELECT last.held_at
                                      FROM subqueue_lease AS last
                                     WHERE last.host_id = %(host)s
                                     ORDER BY last.held_at DESC
                                     LIMIT 1) + interval '1 microsecond')
 WHERE service_id = (SELECT service_id
                       FROM subqueue_lease
                      WHERE host_id = %(host)s
                        AND held_by IS NULL
                        AND service_id <> ALL (%(excluding)s::integer[])
                        AND (blocked_until IS NULL OR blocked_until <= clock())
                        AND EXISTS (SELECT
                                      FROM {queue} AS queue
                                     WHERE queue.host_id = %(host)s AND queue.subqueue = subqueue_lease.service_id)
                      ORDER BY held_at, service_id
                      LIMIT 1
                        FOR UPDATE SKIP LOCKED)
RETURNING service_id;


-- name: dequeue_subqueue
-- takes: host_instance integer, subqueue integer, limit integer
-- gives: priority smallint, sequence bigint, message_id uuid, subscription_id bigint, service_id integer, attempt
--        smallint, subqueue integer, instance_id uuid, claim bigint, deaths smallint, claimed_at double precision
-- Claim the first references of an ordered subqueue whose lease this instance has just taken. A statement of its own, after
-- the lease: it must see what the holder before put back.
WITH ready AS (
    DELETE FROM {queue}
     WHERE ctid = ANY (ARRAY(SELECT ctid
                               FROM {queue}
                              WHERE host_id = %(host)s AND subqueue = %(subqueue)s AND subqueue > 0
                              ORDER BY sequence
                              LIMIT %(limit)s
                                FOR UPDATE))
    RETURNING *
)
INSERT INTO {claimed} (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                       deaths, claimed_by, claimed_at)
SELECT host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
       deaths, %(host_instance)s, clock()
  FROM ready
RETURNING priority, sequence, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
          xmin::text::bigint AS claim, deaths, date_part('epoch', claimed_at) AS claimed_at;


-- name: leave_lease
-- Give up the lease of an ordered service; blocked, if its first message has to wait, for good if somebody has to deal
-- with the one that failed. Whoever settles a claim that was made under an earlier lease leaves the present one alone. A
-- subqueue that became ordered meanwhile goes on waiting for what began before (blocked by 0): the reason is written anew,
-- since the role of a host may not read it.
UPDATE subqueue_lease
   SET held_by = NULL,
       reason = CASE WHEN blocked_by = 0 AND %(blocked_by)s::bigint IS NULL
                     THEN 'It waits for deliveries that began before it was ordered.'
                     ELSE %(reason)s END,
       blocked_by = coalesce(%(blocked_by)s::bigint, CASE WHEN blocked_by = 0 THEN 0 END),
       blocked_until = CASE WHEN %(blocked_by)s::bigint IS NULL AND blocked_by IS DISTINCT FROM 0
                            THEN clock() + %(blocked_for)s::interval
                            ELSE 'infinity' END
 WHERE service_id = %(service)s AND held_by = %(host_instance)s AND %(claim)s::bigint IN (0, claim);


-- name: open_lease
-- The lease of a service that is ordered, or was and may have messages in its subqueue, where its host is now.
INSERT INTO subqueue_lease (service_id, host_id)
SELECT id, host_id
  FROM service
 WHERE id = %(service)s AND port_id IS NULL
   AND (ordered OR EXISTS (SELECT FROM subqueue_lease WHERE service_id = service.id))
    ON CONFLICT (service_id) DO UPDATE SET host_id = excluded.host_id;


-- name: unblock_subqueues
-- A subqueue that a failure stopped goes on when the message that failed is no longer suspended, and when no delivery is claimed
-- or put aside that began before the service was ordered. A subqueue that waits only for these is blocked by 0.
UPDATE subqueue_lease
   SET blocked_until = NULL, reason = NULL, blocked_by = NULL
 WHERE host_id = %(host)s
   AND blocked_by IS NOT NULL
   AND subqueue_may_go_on(service_id, blocked_by);


-- name: join_subqueue
-- A service has become ordered: what is queued for it goes into its subqueue, each in the place of its sequence number. A claim
-- that is being made has these rows or we have: one of us waits for the other, and finds them gone.
UPDATE queue
   SET subqueue = service.subqueue
  FROM (SELECT id, coalesce(port_id, id) AS subqueue FROM service WHERE id = %(service)s AND ordered) AS service
 WHERE queue.service_id = service.id AND queue.subqueue = 0;


-- name: await_unordered
-- What was claimed or put aside before a service became ordered ends first: until then its subqueue is blocked, by no reference.
-- A statement of its own, after `join_subqueue`: it must see what was claimed meanwhile.
UPDATE subqueue_lease
   SET blocked_until = 'infinity', blocked_by = 0, reason = 'It waits for deliveries that began before it was ordered.'
  FROM (SELECT id, coalesce(port_id, id) AS subqueue FROM service WHERE id = %(service)s AND ordered) AS service
 WHERE subqueue_lease.service_id = service.subqueue
   AND subqueue_lease.blocked_by IS NULL
   AND (EXISTS (SELECT FROM claimed WHERE claimed.service_id = service.id AND claimed.subqueue = 0)
        OR EXISTS (SELECT FROM scheduled WHERE scheduled.service_id = service.id AND scheduled.subqueue = 0));


-- name: has_subqueues
-- Whether any service of the host is ordered, or was.
SELECT 1 FROM subqueue_lease WHERE host_id = %(host)s LIMIT 1;


-- name: read_last_drawn
-- The last sequence number that any reference was given.
SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM reference_sequence;


-- name: draw_transaction
-- The number of a new transaction, and that of the oldest one that is still at work.
SELECT pg_current_xact_id()::text::bigint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
