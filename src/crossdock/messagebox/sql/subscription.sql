-- What matches, and the subscriptions of running instances.


-- name: load_subscriptions
-- Subscriptions enlisted or changed after an epoch.
SELECT subscription.id, subscription.service_id, service.name, subscription.host_id, service.state,
       subscription.priority, service.subqueue, service.two_way, host.labels,
       coalesce(send_port_group.group_id, service.transport_id)::text, service.receives
  FROM subscription
  JOIN service ON service.id = subscription.service_id
  JOIN host ON host.id = subscription.host_id
  LEFT JOIN send_port_group ON send_port_group.name = service.group_name
 WHERE subscription.epoch > %(epoch)s
 ORDER BY subscription.id;


-- name: load_predicates
-- Predicate rows of subscriptions enlisted or changed after an epoch, one row per constant: what the index is built from.
-- Group 0 is the transport id, the others are the filter's.
SELECT predicate.subscription_id, predicate.group_number, predicate.position, predicate.property, predicate.operator,
       constant.value
  FROM subscription
  JOIN predicate ON predicate.subscription_id = subscription.id
  LEFT JOIN LATERAL unnest(predicate.value) AS constant (value) ON true
 WHERE subscription.epoch > %(epoch)s AND predicate.group_number >= %(first_group)s
 ORDER BY predicate.subscription_id, predicate.group_number, predicate.position;


-- name: insert_predicates
-- takes: service integer
-- gives: subscription_id integer
-- The predicates of a service's subscription, from how the service declares them, where this transaction has moved the epoch:
-- a publisher that knows the subscription without them would not hear of it.
INSERT INTO predicate (subscription_id, group_number, position, property, type, operator, value, pass)
SELECT subscription.id, 0, 0,
       CASE WHEN service.group_name IS NULL THEN 'BTS.SPTransportID' ELSE 'BTS.SPGroupID' END, 'text', '=',
       ARRAY[coalesce(send_port_group.group_id, service.transport_id)::text], 1
  FROM service
  JOIN subscription ON subscription.service_id = service.id
  LEFT JOIN send_port_group ON send_port_group.name = service.group_name
 WHERE service.id = %(service)s AND may_do('operator', service.application) AND epoch_moves()
 UNION ALL
SELECT subscription.id, (entry ->> 0)::smallint, (entry ->> 1)::smallint, entry ->> 2, entry ->> 3, entry ->> 4,
       CASE WHEN json_typeof(entry -> 5) = 'array' THEN ARRAY(SELECT json_array_elements_text(entry -> 5)) END,
       (entry ->> 6)::smallint
  FROM service
  JOIN subscription ON subscription.service_id = service.id
 CROSS JOIN json_array_elements(service.predicate) AS entry
 WHERE service.id = %(service)s AND may_do('operator', service.application) AND epoch_moves()
RETURNING subscription_id;


-- name: enlist
-- takes: service integer
-- gives: id integer
-- Give a service its one subscription: its transport id as a group, or the groups of its filter. One that it has already
-- keeps its id and gets new predicates. Whoever may not do this to an application gets nothing done, nor does a transaction
-- that has not moved the epoch. Nothing subscribes that is unenlisted, or deployed no more.
WITH known AS (
    UPDATE subscription
       SET host_id = service.host_id, priority = service.priority, epoch = (SELECT box.epoch FROM box)
      FROM service
     WHERE service.id = %(service)s AND subscription.service_id = service.id AND may_do('operator', service.application)
       AND epoch_moves() AND service.state <> 'unenlisted' AND service.deployed
    RETURNING subscription.id
), fresh AS (
    INSERT INTO subscription (service_id, host_id, priority, epoch, enlisted_after)
    SELECT id, host_id, priority, (SELECT box.epoch FROM box),
           (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM reference_sequence)
      FROM service
     WHERE id = %(service)s AND NOT EXISTS (SELECT FROM known) AND may_do('operator', service.application) AND epoch_moves()
       AND state <> 'unenlisted' AND deployed
    RETURNING id
), made AS (
    SELECT id FROM known UNION ALL SELECT id FROM fresh
), before AS (
    DELETE FROM predicate
     USING known
     WHERE predicate.subscription_id = known.id
)
SELECT id FROM made;


-- name: keep_versions
-- The last step of every change of subscriptions, also of an operator who may not write versions.
SELECT keep_versions();


-- name: list_versions
-- The subscriptions of an epoch; or of a time, for a message of which only that is known.
SELECT subscription_id, service_id, service, application, predicate::text AS predicate, priority,
       from_epoch, until_epoch, from_at, until_at
  FROM subscription_version
 WHERE CASE WHEN %(epoch)s::bigint IS NULL
            THEN from_at <= %(at)s AND (until_at IS NULL OR until_at > %(at)s)
            ELSE from_epoch <= %(epoch)s AND (until_epoch IS NULL OR until_epoch > %(epoch)s)
       END
 ORDER BY service, subscription_id;


-- name: list_present_versions
SELECT subscription_id, service_id, service, application, predicate::text AS predicate, priority,
       from_epoch, until_epoch, from_at, until_at
  FROM subscription_version
 WHERE until_epoch IS NULL
 ORDER BY service, subscription_id;


-- name: list_version_services
SELECT DISTINCT subscription_id, service_id, service
  FROM subscription_version
 WHERE %(subscription)s::bigint[] IS NULL OR subscription_id = ANY (%(subscription)s::bigint[]);


-- name: forget_versions
-- Versions that ended before the oldest message that is tracked, and before the oldest in the box, which may be tracked no
-- longer and still be asked about. Whoever changed the subscription may have waited for the lock since it began, and a message
-- may have been published meanwhile: an hour is more than anybody waits.
DELETE FROM subscription_version
 WHERE until_at < least((SELECT at FROM track_published ORDER BY at LIMIT 1),
                        (SELECT min(at) FROM track_few),
                        (SELECT created_at FROM message ORDER BY id LIMIT 1),
                        clock()) - interval '1 hour';


-- name: unenlist
-- takes: service integer[]
-- gives: subscription_id integer
-- Take the subscription of services away, and leave word for routers that know it. What was queued stays. Nothing is taken away
-- unless this transaction has moved the epoch: a publisher would go on to give messages to what is gone.
WITH unenlisted AS (
    DELETE FROM subscription
     USING service
     WHERE service.id = ANY (%(service)s::integer[]) AND subscription.service_id = service.id
       AND may_do('operator', service.application) AND epoch_moves()
    RETURNING subscription.id
)
INSERT INTO subscription_removal (subscription_id, epoch)
SELECT unenlisted.id, (SELECT box.epoch FROM box)
  FROM unenlisted
RETURNING subscription_id;


-- name: forget_removals
-- Removed subscriptions that every router has heard of by now; one that has slept longer loads everything anew.
WITH past AS (
    DELETE FROM epoch_history
     WHERE epoch <= (SELECT epoch FROM box) - %(kept)s
), forgotten AS (
    DELETE FROM subscription_removal
     WHERE epoch <= (SELECT epoch FROM box) - %(kept)s
    RETURNING epoch
)
UPDATE box
   SET removals_after = greatest(removals_after, (SELECT max(epoch) FROM forgotten))
 WHERE EXISTS (SELECT FROM forgotten);


-- name: move_epoch
-- takes: nothing
-- gives: epoch bigint
-- A new epoch, with a token that no other has. The history is for processes that know an epoch before it. Nobody publishes until
-- the end of the transaction, whoever calls this: the number is SUBSCRIPTION_LOCK.
WITH alone AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(201678093)
), moved AS (
    UPDATE box
       SET epoch = epoch + 1, epoch_token = gen_random_uuid(), moved_by = pg_current_xact_id()
      FROM alone
    RETURNING epoch, epoch_token
)
INSERT INTO epoch_history (epoch, token)
SELECT epoch, epoch_token
  FROM moved
RETURNING epoch;


-- name: read_epoch
-- The current epoch, and how far the log of the server has come: who asks often hears of it for nothing.
SELECT epoch, epoch_token, CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint END
  FROM box;


-- name: find_instances
-- takes: hash uuid[]
-- gives: hash uuid, id bigint, instance_id uuid, service_id integer, name text, host_id smallint, priority smallint,
--        bound_to integer, labels text[]
-- The running instances that wait for messages with these correlation values, in the order in which everybody locks them.
-- Until the publisher commits nobody ends them; whoever ends one then finds the reference it was given.
SELECT waiting.hash, waiting.id, waiting.instance_id, waiting.service_id, service.name, waiting.host_id, waiting.priority,
       waiting.bound_to, host.labels
  FROM instance_subscription AS waiting
  JOIN service ON service.id = waiting.service_id
  JOIN host ON host.id = waiting.host_id
 WHERE waiting.hash = ANY(%(hash)s)
   AND coalesce(waiting.bound_to, 1) > 0 -- a forged one must not make the publication fail
 ORDER BY waiting.id + 0 -- or they might all be read in the order of their ids, to save sorting the few that match
   FOR KEY SHARE OF waiting;


-- name: correlate_responses
-- Whoever waits for a response correlates by its token, which the role of a host may not make known.
INSERT INTO correlation (property)
SELECT ARRAY['BTS.EpmRRCorrelationToken']
 WHERE EXISTS (SELECT FROM service WHERE class IN ('messaging isolated', 'orchestration') AND deployed)
    ON CONFLICT DO NOTHING;


-- name: correlate_orchestration
-- A set by which instances of an orchestration correlate. One that has changed is another one: running instances keep theirs.
INSERT INTO correlation (property, service_id, name, types)
VALUES (%(property)s, %(service)s, %(name)s, %(types)s)
    ON CONFLICT DO NOTHING;


-- name: forget_correlations
-- Before those of a service are declared anew: its running instances keep theirs.
DELETE FROM correlation
 WHERE service_id = %(service)s
   AND NOT EXISTS (SELECT FROM instance WHERE instance.service_id = %(service)s)
   AND NOT EXISTS (SELECT FROM instance_subscription WHERE correlation_id = correlation.id);


-- name: open_convoys
-- takes: hash uuid[], instance uuid[]
-- gives: opened uuid
-- New instances that messages with these values begin or join. Whoever is the second to open one waits here until the first
-- commits, and is not given it. In the order of their hashes, so that nobody waits for one who waits for him. They are at the
-- host of the orchestration whose correlation the hash begins with. Whoever publishes opens those of any; a person who resumes,
-- those of what it operates: instances of others would end as if they were a convoy. So would one that runs, whoever names it.
INSERT INTO convoy (hash, instance_id, host_id)
SELECT wanted.hash, wanted.instance_id, service.host_id
  FROM unnest(%(hash)s::uuid[], %(instance)s::uuid[]) AS wanted (hash, instance_id)
  JOIN correlation ON correlation.id = correlation_of(wanted.hash)
  JOIN service ON service.id = correlation.service_id
 WHERE ((SELECT own_hosts(session_user)) IS NOT NULL OR may_do('operator', service.application))
   AND (SELECT true FROM instance WHERE host_id = service.host_id AND id = wanted.instance_id LIMIT 1) IS NULL
 ORDER BY wanted.hash
    ON CONFLICT (hash) DO NOTHING
RETURNING hash;


-- name: close_convoys
-- takes: hash uuid[]
-- gives: closed uuid
-- Those whose instance does not wait by these values: what was to begin it turned out to be published already, or somebody
-- forged one.
DELETE FROM convoy
 WHERE hash = ANY (%(hash)s::uuid[])
   AND (SELECT true
          FROM instance_subscription AS waiting
         WHERE waiting.hash = convoy.hash
           AND waiting.instance_id = convoy.instance_id
           AND waiting.host_id = convoy.host_id
         LIMIT 1) IS NULL
RETURNING hash;


-- name: list_unanswerable
-- Two-way locations whose host lacks labels that they give to a request: the response carries them as well, so whoever
-- waits at that host could never be given it.
SELECT location.name, host.name, lacking.labels
  FROM receive_location AS location
  JOIN host ON host.id = location.host_id
 CROSS JOIN LATERAL (SELECT array_agg(label ORDER BY label) AS labels
                       FROM json_array_elements_text(location.definition -> 'labels') AS label
                      WHERE label <> ALL (host.labels)) AS lacking
 WHERE location.deployed AND (location.definition ->> 'two_way')::boolean AND lacking.labels IS NOT NULL
 ORDER BY location.id;


-- name: lock_subscriptions
-- Lock the subscriptions that a step ends and those that it publishes to, one after the other in the order in which everybody
-- locks them.
SELECT lock_subscriptions(%(hash)s::uuid[], %(instance)s::uuid[]);


-- name: end_instance
-- Delete the subscriptions of instances at these hosts, or wherever they are, one after the other in the order in which
-- publishers lock them.
DELETE FROM instance_subscription
 WHERE id = ANY (ARRAY (SELECT id
                          FROM instance_subscription
                         WHERE instance_id = ANY(%(instance)s)
                           AND (%(at)s::smallint[] IS NULL OR host_id = ANY (%(at)s::smallint[]))
                         ORDER BY id + 0
                           FOR UPDATE));


-- name: discard
-- takes: instance uuid[]
-- gives: messages uuid[], instances uuid[], moved bigint
-- What instances were given and did not take before they ended. A statement of its own, after their subscriptions are gone:
-- it must see what a publisher that held them gave meanwhile.
WITH discarded AS (
    DELETE FROM {queue}
     WHERE instance_id = ANY(%(instance)s)
    RETURNING host_id, sequence, priority, message_id, subscription_id, service_id, attempt, instance_id
), postponed AS (
    DELETE FROM {scheduled}
     WHERE instance_id = ANY(%(instance)s)
    RETURNING host_id, sequence, priority, message_id, subscription_id, service_id, attempt, instance_id
), gone AS (
    SELECT * FROM discarded UNION ALL SELECT * FROM postponed
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, 0, instance_id, 0,
                          false, 'suspended', NULL, 'discarded', 'instance-ended', 'The instance ended without taking this message.',
                          clock(), 'discarded', NULL)::moving) AS rows
      FROM gone
)
SELECT array_agg(message_id), array_agg(instance_id), (SELECT count(*) FROM moving, move_references(moving.rows)) FROM gone;


-- name: count_changed
SELECT count(*) FROM subscription WHERE epoch > %(epoch)s;


-- name: list_removed
SELECT subscription_id FROM subscription_removal WHERE epoch > %(epoch)s;


-- name: list_correlations
SELECT id, property, types, service_id, name FROM correlation;


-- name: find_correlation
SELECT id FROM correlation WHERE property = %(property)s AND service_id IS NULL;


-- name: create_correlation
INSERT INTO correlation (property) VALUES (%(property)s) RETURNING id;


-- name: subscribe_instance
INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value, bound_to)
SELECT %(instance)s, id, host_id, %(correlation)s, %(hash)s, %(value)s, %(bound_to)s FROM service WHERE name = %(service)s
RETURNING id;
