-- What matches, and the subscriptions of running instances.


-- name: load_subscriptions
-- Subscriptions enlisted or changed after an epoch.
SELECT subscription.id, subscription.service_id, service.name, subscription.host_id, service.state,
       subscription.priority, CASE WHEN service.ordered THEN coalesce(service.port_id, service.id) ELSE 0 END, service.two_way, host.labels,
       coalesce(send_port_group.group_id, service.transport_id)::text
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
-- The predicates of a service's subscription, from how the service declares them.
INSERT INTO predicate (subscription_id, group_number, position, property, type, operator, value, pass)
SELECT subscription.id, 0, 0,
       CASE WHEN service.group_name IS NULL THEN 'BTS.SPTransportID' ELSE 'BTS.SPGroupID' END, 'text', '=',
       ARRAY[coalesce(send_port_group.group_id, service.transport_id)::text], 1
  FROM service
  JOIN subscription ON subscription.service_id = service.id
  LEFT JOIN send_port_group ON send_port_group.name = service.group_name
 WHERE service.id = %(service)s
 UNION ALL
SELECT subscription.id, (entry ->> 0)::smallint, (entry ->> 1)::smallint, entry ->> 2, entry ->> 3, entry ->> 4,
       CASE WHEN json_typeof(entry -> 5) = 'array' THEN ARRAY(SELECT json_array_elements_text(entry -> 5)) END,
       (entry ->> 6)::smallint
  FROM service
  JOIN subscription ON subscription.service_id = service.id
 CROSS JOIN json_array_elements(service.predicate) AS entry
 WHERE service.id = %(service)s;


-- name: enlist
-- Give a service its one subscription: its transport id as a group, or the groups of its filter. One that it has already
-- keeps its id and gets new predicates.
WITH known AS (
    UPDATE subscription
       SET host_id = service.host_id, priority = service.priority, epoch = %(epoch)s
      FROM service
     WHERE service.id = %(service)s AND subscription.service_id = service.id
    RETURNING subscription.id
), fresh AS (
    INSERT INTO subscription (service_id, host_id, priority, epoch)
    SELECT id, host_id, priority, %(epoch)s
      FROM service
     WHERE id = %(service)s AND NOT EXISTS (SELECT FROM known)
    RETURNING id
), made AS (
    SELECT id FROM known UNION ALL SELECT id FROM fresh
), before AS (
    DELETE FROM predicate
     USING known
     WHERE predicate.subscription_id = known.id
)
SELECT id FROM made;


-- name: unenlist
-- Take the subscription of services away, and leave word for routers that know it. What was queued stays.
WITH unenlisted AS (
    DELETE FROM subscription
     WHERE service_id = ANY(%(service)s)
    RETURNING id
)
INSERT INTO subscription_removal (subscription_id, epoch)
SELECT id, %(epoch)s
  FROM unenlisted;


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
-- A new epoch, with a token that no other has. The history is for processes that know an epoch before it.
WITH moved AS (
    UPDATE box
       SET epoch = epoch + 1, epoch_token = gen_random_uuid()
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
 WHERE EXISTS (SELECT FROM service WHERE class = 'messaging isolated' AND deployed)
    ON CONFLICT DO NOTHING;


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
-- Delete the subscriptions of instances, one after the other in the order in which publishers lock them.
DELETE FROM instance_subscription
 WHERE id = ANY (ARRAY (SELECT id
                          FROM instance_subscription
                         WHERE instance_id = ANY(%(instance)s)
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
                          clock())::moving) AS rows
      FROM gone
)
SELECT array_agg(message_id), array_agg(instance_id), (SELECT count(*) FROM moving, move_references(moving.rows)) FROM gone;


-- name: touch_subscription
-- A change that routers have to hear of.
UPDATE subscription SET epoch = %(epoch)s WHERE service_id = %(service)s;


-- name: count_changed
SELECT count(*) FROM subscription WHERE epoch > %(epoch)s;


-- name: list_removed
SELECT subscription_id FROM subscription_removal WHERE epoch > %(epoch)s;


-- name: list_correlations
SELECT id, property FROM correlation;


-- name: find_correlation
SELECT id FROM correlation WHERE property = %(property)s;


-- name: create_correlation
INSERT INTO correlation (property) VALUES (%(property)s) RETURNING id;


-- name: subscribe_instance
INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value, bound_to)
SELECT %(instance)s, id, host_id, %(correlation)s, %(hash)s, %(value)s, %(bound_to)s FROM service WHERE name = %(service)s
RETURNING id;
