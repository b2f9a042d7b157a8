-- Taking an application away, and what becomes of what it leaves behind.


-- name: lock_application
SELECT deployed FROM application WHERE name = %(application)s FOR UPDATE;


-- name: list_applications
-- Applications that are deployed, with the number of artefacts of each kind.
SELECT application.name, application.deployed_at,
       (SELECT count(*) FROM receive_location WHERE receive_location.application = application.name AND receive_location.deployed) AS locations,
       (SELECT count(*) FROM service
         WHERE service.application = application.name AND service.deployed AND service.class = 'messaging' AND group_name IS NULL) AS ports,
       (SELECT count(*) FROM send_port_group WHERE send_port_group.application = application.name AND send_port_group.deployed) AS groups,
       (SELECT count(*) FROM service
         WHERE service.application = application.name AND service.deployed AND service.class = 'orchestration') AS orchestrations
  FROM application
 WHERE application.deployed
 ORDER BY application.name;


-- name: lock_left
-- Living instances. Whoever does a step of one locks it before the subscriptions, and so has to be waited for before them.
SELECT id
  FROM instance
 WHERE service_id IN (SELECT id FROM service WHERE application = %(application)s)
 ORDER BY id
   FOR UPDATE;


-- name: count_left
-- What an application would leave behind: what waits, what is in delivery, what is suspended, living instances.
WITH mine AS MATERIALIZED (
    SELECT id FROM service WHERE application = %(application)s
)
SELECT (SELECT count(*) FROM queue WHERE service_id IN (SELECT id FROM mine))
     + (SELECT count(*) FROM scheduled WHERE service_id IN (SELECT id FROM mine)) AS waiting,
       (SELECT count(*) FROM claimed WHERE service_id IN (SELECT id FROM mine))   AS in_delivery,
       (SELECT count(*) FROM suspended WHERE service_id IN (SELECT id FROM mine)) AS suspended,
       (SELECT count(*) FROM instance WHERE service_id IN (SELECT id FROM mine))  AS instances;


-- name: forget_application
-- It is not deployed, and deploying the same again is a change.
UPDATE application SET deployed = false, digest = '' WHERE name = %(application)s;


-- name: forget_unread
-- Sources that nobody has begun to read, of locations that are gone: they stay where they are, and are listed anew if the
-- application comes back.
DELETE FROM intake
 WHERE claimed_by = 0
   AND location_id IN (SELECT id FROM receive_location WHERE application = %(application)s)
   AND NOT EXISTS (SELECT FROM publication WHERE publication.intake_sequence = intake.sequence);


-- name: is_unfinished
-- Whether a step was being done while its application was undeployed: it may leave something that was to be ended, or kept.
SELECT EXISTS (SELECT FROM instance JOIN service ON service.id = instance.service_id
                WHERE service.application = %(application)s AND (%(terminate)s OR instance.state = 'running'))
    OR EXISTS (SELECT FROM claimed JOIN service ON service.id = claimed.service_id
                WHERE service.application = %(application)s AND (%(terminate)s OR service.class = 'orchestration'));


-- name: keep_instances
-- Instances stay as they are and do nothing: what comes for them is kept for them.
UPDATE instance
   SET state = 'suspended', code = 'application-undeployed', reason = %(reason)s, since = clock()
 WHERE id = ANY (%(id)s::uuid[]) AND state = 'running';


-- name: keep_queued
-- What waits is suspended, except what is for an instance, which keeps it, or for one host instance, which is about to take it.
WITH mine AS MATERIALIZED (
    SELECT id, class FROM service WHERE application = %(application)s
), taken AS (
    DELETE FROM queue
     USING mine
     WHERE queue.service_id = mine.id
       AND CASE WHEN mine.class = 'orchestration'
                THEN NOT EXISTS (SELECT FROM instance WHERE instance.id = queue.instance_id AND instance.host_id = queue.host_id)
                ELSE queue.subqueue >= 0 END
    RETURNING queue.*
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                          0, false, 'suspended', NULL, 'send', 'application-undeployed', %(reason)s, clock(), 'suspended', NULL)::moving) AS rows
      FROM taken
)
SELECT count(*), (SELECT count(*) FROM moving, move_references(moving.rows)) FROM taken;


-- name: keep_scheduled
-- The same for what waits for its next attempt.
WITH taken AS (
    DELETE FROM scheduled
     WHERE service_id IN (SELECT id FROM service WHERE application = %(application)s)
    RETURNING *
), moving AS (
    SELECT array_agg(ROW (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                          0, false, 'suspended', NULL, 'send', 'application-undeployed', %(reason)s, clock(), 'suspended', NULL)::moving) AS rows
      FROM taken
)
SELECT count(*), (SELECT count(*) FROM moving, move_references(moving.rows)) FROM taken;


-- name: track_terminated
-- A part of the four below: the track of what they end.
INSERT INTO track_settled (host_id, event, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_id, 'terminated', attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM ended
     WHERE service_id NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY host_id, sequence >> 12, attempt


-- name: end_queued
-- Each of the four is a statement of its own: a reference that somebody claims meanwhile is seen where it went.
WITH ended AS (
    DELETE FROM queue WHERE service_id IN (SELECT id FROM service WHERE application = %(application)s) RETURNING *
), tracked AS (
    {track_terminated}
)
SELECT count(*), drop_references(array_agg(message_id)) FROM ended;


-- name: end_scheduled
WITH ended AS (
    DELETE FROM scheduled WHERE service_id IN (SELECT id FROM service WHERE application = %(application)s) RETURNING *
), tracked AS (
    {track_terminated}
)
SELECT count(*), drop_references(array_agg(message_id)) FROM ended;


-- name: end_claimed
-- What is being delivered may arrive all the same: what comes of it is not recorded. A step that has locked its claims waits
-- for us, and is not waited for here: what it leaves is ended afterwards.
WITH mine AS (
    SELECT host_id, sequence
      FROM claimed
     WHERE service_id IN (SELECT id FROM service WHERE application = %(application)s)
       FOR UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM claimed USING mine
     WHERE claimed.host_id = mine.host_id AND claimed.sequence = mine.sequence
    RETURNING claimed.*
), tracked AS (
    {track_terminated}
)
SELECT count(*), drop_references(array_agg(message_id)) FROM ended;


-- name: end_suspended
WITH ended AS (
    DELETE FROM suspended WHERE service_id IN (SELECT id FROM service WHERE application = %(application)s) RETURNING *
), tracked AS (
    {track_terminated}
)
SELECT count(*), drop_references(array_agg(message_id)) FROM ended;


-- name: list_held_back
-- Of suspended deliveries those whose application was undeployed: they wait until it is deployed again.
SELECT suspended.sequence, application.name
  FROM suspended
  JOIN service ON service.id = suspended.service_id
  JOIN application ON application.name = service.application
 WHERE suspended.sequence = ANY(%(sequence)s) AND suspended.kind IN ('send', 'stopped') AND NOT application.deployed;


-- name: list_names
-- What a command may name.
SELECT kind, array_agg(name ORDER BY name)
  FROM (SELECT 'application' AS kind, name FROM application WHERE deployed
         UNION ALL
        SELECT 'host', name FROM host
         UNION ALL
        SELECT 'location', name FROM receive_location WHERE deployed
         UNION ALL
        SELECT 'group', name FROM send_port_group WHERE deployed
         UNION ALL
        SELECT CASE class WHEN 'orchestration' THEN 'orchestration' ELSE 'port' END, name
          FROM service
         WHERE deployed AND group_name IS NULL AND class IN ('messaging', 'orchestration')) AS named
 GROUP BY kind;
