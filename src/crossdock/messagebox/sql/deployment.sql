-- What an application deploys, and what moves with it.


-- name: list_deployed
-- What is deployed under these names, in the form a deployment would store it, so that only what differs is touched.
SELECT service.name, host.name, service.priority, service.ordered, service.two_way, service.definition, service.predicate,
       service.track
  FROM service
  JOIN host ON host.id = service.host_id
 WHERE service.name = ANY(%(names)s) AND service.deployed;


-- name: list_application_services
-- Everything of an application that can subscribe.
SELECT name, class, state, group_name FROM service WHERE application = %(application)s AND deployed ORDER BY id;


-- name: list_application_locations
SELECT receive_location.name, host.name, receive_location.definition, receive_location.track
  FROM receive_location
  JOIN host ON host.id = receive_location.host_id
 WHERE receive_location.application = %(application)s AND receive_location.deployed;


-- name: list_application_groups
SELECT name, state FROM send_port_group WHERE application = %(application)s AND deployed;


-- name: list_labels
SELECT name, labels FROM host;


-- name: count_references
-- What waits for services, and what is suspended there; what a member of a group was given is counted with its port.
SELECT coalesce(port.name, service.name),
       sum(reference.count) FILTER (WHERE NOT reference.suspended)::bigint,
       sum(reference.count) FILTER (WHERE reference.suspended)::bigint
  FROM (SELECT service_id, false AS suspended, count(*) FROM queue GROUP BY service_id
         UNION ALL
        SELECT service_id, false, count(*) FROM claimed GROUP BY service_id
         UNION ALL
        SELECT service_id, false, count(*) FROM scheduled GROUP BY service_id
         UNION ALL
        SELECT service_id, true, count(*) FROM suspended GROUP BY service_id) AS reference
  JOIN service ON service.id = reference.service_id
  LEFT JOIN service AS port ON port.id = service.port_id
 WHERE coalesce(port.name, service.name) = ANY (%(names)s)
 GROUP BY 1;


-- name: deploy_service
-- A service as its application declares it: made on the first deployment, brought up to date on the next. A send port that
-- was gone for a while begins anew; one that an operator stopped stays stopped. A member of a group follows its group and
-- its port, and whoever waits for responses has no subscription but those of its instances.
INSERT INTO service (name, application, host_id, priority, ordered, two_way, definition, predicate, class, group_name,
                     port_id, state, receives, version, versions, track)
SELECT %(name)s, %(application)s, create_host(%(host)s), %(priority)s, %(ordered)s, %(two_way)s, %(definition)s,
       %(predicate)s, %(class)s, %(group)s, (SELECT id FROM service WHERE name = %(port)s),
       CASE WHEN %(starts)s THEN 'started' ELSE 'unenlisted' END, %(receives)s, %(version)s,
       array_remove(ARRAY[%(version)s::text], NULL), %(track)s
    ON CONFLICT (name) DO UPDATE
   SET application = excluded.application, host_id = excluded.host_id, priority = excluded.priority, ordered = excluded.ordered, two_way = excluded.two_way,
       definition = excluded.definition, predicate = excluded.predicate, class = excluded.class,
       group_name = excluded.group_name, port_id = excluded.port_id, deployed = true, receives = excluded.receives,
       version = excluded.version, versions = array_remove(service.versions, excluded.version) || excluded.versions,
       track = excluded.track,
       state = CASE WHEN service.deployed THEN service.state ELSE excluded.state END
RETURNING id, state, host_id;


-- name: keep_version
-- The code of an orchestration, which running instances keep. What has the same digest does the same.
INSERT INTO orchestration_version (digest, application, bundle, packages)
VALUES (%(digest)s, %(application)s, %(bundle)s, %(packages)s)
    ON CONFLICT DO NOTHING;


-- name: count_instances
-- Running instances of an orchestration that is at another host, and that host.
SELECT count(*), host.name
  FROM service
  JOIN host ON host.id = service.host_id AND host.name <> %(host)s
  JOIN instance ON instance.host_id = host.id AND instance.service_id = service.id
 WHERE service.name = %(name)s
 GROUP BY host.name;


-- name: find_service
SELECT id, state FROM service WHERE name = %(name)s;


-- name: deploy_group
-- A group of send ports. One that was gone for a while begins anew; one that an operator stopped stays stopped.
INSERT INTO send_port_group (name, application)
VALUES (%(name)s, %(application)s)
    ON CONFLICT (name) DO UPDATE
   SET application = excluded.application, deployed = true,
       state = CASE WHEN send_port_group.deployed THEN send_port_group.state ELSE 'started' END;


-- name: deploy_location
-- A receive location as its application declares it. One that an operator disabled stays disabled.
INSERT INTO receive_location (name, application, host_id, definition, track)
VALUES (%s, %s, create_host(%s), %s, %s)
    ON CONFLICT (name) DO UPDATE
   SET application = excluded.application, host_id = excluded.host_id, definition = excluded.definition,
       track = excluded.track, deployed = true,
       enabled = CASE WHEN receive_location.deployed THEN receive_location.enabled ELSE true END;


-- name: follow_port
-- Members that were taken out of their group go where their port goes, and are ordered if it is: what they were given waits in
-- its subqueue.
UPDATE service AS member
   SET host_id = port.host_id, ordered = port.ordered
  FROM service AS port, service AS before
 WHERE port.id = member.port_id AND before.id = member.id
   AND (member.host_id <> port.host_id OR member.ordered <> port.ordered)
RETURNING member.id, member.host_id, before.host_id <> member.host_id, member.ordered AND NOT before.ordered;


-- name: list_members
-- Members of groups whose state is not what their group and their port make of it: the lower of the two.
SELECT member.id, member.state, member.host_id, due.state
  FROM service AS member
  JOIN service AS port ON port.id = member.port_id
  JOIN send_port_group AS grouped ON grouped.name = member.group_name
 CROSS JOIN LATERAL (SELECT CASE WHEN NOT (member.deployed AND port.deployed AND grouped.deployed) THEN 'unenlisted'
                                 WHEN 'unenlisted' IN (port.state, grouped.state) THEN 'unenlisted'
                                 WHEN 'stopped' IN (port.state, grouped.state) THEN 'stopped'
                                 ELSE 'started'
                            END AS state) AS due
 WHERE member.state <> due.state
 ORDER BY member.id;


-- name: list_last_ports
-- Of a group: whether a port of it is enlisted. Of a port: the groups that are enlisted and have no other port that is.
SELECT grouped.name
  FROM send_port_group AS grouped
 WHERE grouped.deployed
   AND CASE WHEN grouped.name = %(name)s
             AND NOT EXISTS (SELECT FROM service WHERE name = %(name)s AND port_id IS NULL AND deployed)
            THEN EXISTS (SELECT
                           FROM service AS member
                           JOIN service AS port ON port.id = member.port_id
                          WHERE member.group_name = grouped.name AND member.deployed AND port.state <> 'unenlisted')
            ELSE grouped.state <> 'unenlisted'
             AND (SELECT array_agg(port.name)
                    FROM service AS member
                    JOIN service AS port ON port.id = member.port_id
                   WHERE member.group_name = grouped.name AND member.deployed AND port.state <> 'unenlisted')
               = ARRAY[%(name)s]
       END
 ORDER BY grouped.name
 LIMIT 1;


-- name: move_references
-- A service has moved to another host: what waits for it goes along, except what only one host instance may take. What is
-- claimed is settled where it is. What the new host lacks a label of stays suspended where it was; nothing carries labels
-- where there never were any, and need not be looked at.
WITH labelled AS MATERIALIZED (
    SELECT id FROM host WHERE labelled
), queued AS (
    DELETE FROM queue WHERE service_id = %(service)s AND host_id <> %(host)s AND (subqueue >= 0 OR subqueue = -2147483648) RETURNING *
), postponed AS (
    DELETE FROM scheduled WHERE service_id = %(service)s AND host_id <> %(host)s AND (subqueue >= 0 OR subqueue = -2147483648) RETURNING *
), kept AS (
    DELETE FROM suspended
     WHERE service_id = %(service)s AND host_id <> %(host)s AND (subqueue >= 0 OR subqueue = -2147483648)
       AND CASE WHEN host_id IN (SELECT id FROM labelled) THEN why_withheld(message_id, %(host)s) END IS NULL
    RETURNING *
), ready AS (
    SELECT *, CASE WHEN host_id IN (SELECT id FROM labelled) THEN why_withheld(message_id, %(host)s) END AS withheld
      FROM queued
), later AS (
    SELECT *, CASE WHEN host_id IN (SELECT id FROM labelled) THEN why_withheld(message_id, %(host)s) END AS withheld
      FROM postponed
), moved_queued AS (
    INSERT INTO queue (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id,
                       deaths)
    SELECT %(host)s, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id, deaths
      FROM ready
     WHERE withheld IS NULL
), moved_postponed AS (
    INSERT INTO scheduled (host_id, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue,
                           instance_id, due_at, reason)
    SELECT %(host)s, sequence, priority, message_id, subscription_id, service_id, attempt, subqueue, instance_id, due_at, reason
      FROM later
     WHERE withheld IS NULL
), withheld AS (
    INSERT INTO suspended (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, subqueue,
                           instance_id, reason)
    SELECT host_id, sequence, 'send', 'label-missing', message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id, withheld
      FROM (SELECT host_id, sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id, withheld
              FROM ready
             UNION ALL
            SELECT host_id, sequence, message_id, subscription_id, service_id, priority, attempt, subqueue, instance_id, withheld
              FROM later) AS reference
     WHERE withheld IS NOT NULL
    RETURNING *
), tracked AS (
    INSERT INTO track_settled (host_id, event, code, reason, attempt, block, sequence, message_id, service_id, instance_id)
    SELECT host_id, 'suspended', code, reason, attempt, sequence >> 12,
           array_agg((sequence & 4095)::smallint), array_agg(message_id), array_agg(service_id),
           CASE WHEN count(instance_id) > 0 THEN array_agg(instance_id) END
      FROM withheld
     WHERE service_id NOT IN (SELECT id FROM service WHERE track = 'off')
     GROUP BY host_id, code, reason, sequence >> 12, attempt
)
INSERT INTO suspended (host_id, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, reason,
                       suspended_at, instance_id)
SELECT %(host)s, sequence, kind, code, message_id, subscription_id, service_id, priority, attempt, reason, suspended_at, instance_id
  FROM kept;


-- name: set_labels
-- The labels of a host; its subscriptions have changed with them.
WITH labelled AS (
    UPDATE host
       SET labels = %(labels)s, labelled = labelled OR %(labels)s <> '{}'
     WHERE id = create_host(%(host)s) AND labels <> %(labels)s
    RETURNING id
)
UPDATE subscription
   SET epoch = %(epoch)s
  FROM labelled
 WHERE subscription.host_id = labelled.id;


-- name: read_digest
-- What was deployed last under this name.
SELECT digest FROM application WHERE name = %(application)s;


-- name: record_application
INSERT INTO application (name, digest)
VALUES (%(application)s, %(digest)s)
    ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, deployed_at = clock(), deployed = true;


-- name: declare_property
INSERT INTO property (name, type) VALUES (%(name)s, %(type)s) ON CONFLICT DO NOTHING;


-- name: make_personal
-- What any application calls personal is so for all. Nearest misses that quote such values are worked out anew.
WITH made AS (
    UPDATE property SET personal = true WHERE lower(name) = lower(%(name)s) AND NOT personal RETURNING name
), forgotten AS (
    DELETE FROM routing_failure WHERE EXISTS (SELECT FROM made)
)
UPDATE suspended SET reported = false WHERE kind = 'unrouted' AND reported AND EXISTS (SELECT FROM made);


-- name: create_host
SELECT create_host(%(host)s);


-- name: read_labels
SELECT id, labels FROM host WHERE name = %(host)s;


-- name: withhold_labelled
-- After ports have moved to hosts that have what this one lost.
SELECT withhold_labelled(%(host)s::smallint);


-- name: find_foreign
-- A name that belongs to another application. The names of one that was undeployed are free, except of a service that left
-- something behind: who takes its name would be given that.
SELECT taken.name, taken.application
  FROM (SELECT 'receive_location' AS kind, name, application, NULL::integer AS service_id FROM receive_location
         UNION ALL
        SELECT 'send_port_group', name, application, NULL FROM send_port_group
         UNION ALL
        SELECT 'service', name, application, id FROM service) AS taken
  JOIN application ON application.name = taken.application
 WHERE taken.kind = %(kind)s AND taken.name = ANY(%(names)s) AND taken.application <> %(application)s
   AND (application.deployed
        OR EXISTS (SELECT FROM suspended WHERE suspended.service_id = taken.service_id)
        OR EXISTS (SELECT FROM queue WHERE queue.service_id = taken.service_id)
        OR EXISTS (SELECT FROM claimed WHERE claimed.service_id = taken.service_id)
        OR EXISTS (SELECT FROM scheduled WHERE scheduled.service_id = taken.service_id)
        OR EXISTS (SELECT FROM instance WHERE instance.service_id = taken.service_id))
 LIMIT 1;


-- name: retire_locations
-- What the application no longer names is disabled.
UPDATE receive_location
   SET enabled = false, deployed = false
 WHERE application = %(application)s AND name <> ALL(%(names)s);


-- name: retire_groups
UPDATE send_port_group SET deployed = false WHERE application = %(application)s AND name <> ALL(%(names)s);


-- name: retire_services
UPDATE service
   SET deployed = false
 WHERE application = %(application)s AND deployed AND name <> ALL(%(names)s)
RETURNING id;


-- name: list_service_places
-- Where services were before they are deployed anew.
SELECT name, host_id, ordered FROM service WHERE name = ANY(%(names)s);


-- name: set_service_state
-- takes: service integer, state text
-- gives: id integer
-- Publishers hear of it with the epoch, which this transaction has to have moved: one that knows another state than this table
-- has could publish nothing. The subscription of what is unenlisted goes with it: nothing could be published to it either.
-- Whoever may not do this to an application gets nothing done, here and below. What is no state is refused before a row could
-- break a constraint: the error would quote the row, with its definition.
WITH changed AS (
    UPDATE service
       SET state = %(state)s
     WHERE id = %(service)s AND %(state)s IN ('started', 'stopped', 'unenlisted')
       AND may_do('operator', application) AND epoch_moves()
    RETURNING id, state
), touched AS (
    UPDATE subscription
       SET epoch = (SELECT box.epoch FROM box)
      FROM changed
     WHERE subscription.service_id = changed.id AND changed.state <> 'unenlisted'
), unenlisted AS (
    DELETE FROM subscription
     USING changed
     WHERE subscription.service_id = changed.id AND changed.state = 'unenlisted'
    RETURNING subscription.id
), removed AS (
    INSERT INTO subscription_removal (subscription_id, epoch)
    SELECT unenlisted.id, (SELECT box.epoch FROM box) FROM unenlisted
)
SELECT id FROM changed;


-- name: set_group_state
-- takes: name text, state text
-- gives: changed text
UPDATE send_port_group
   SET state = %(state)s
 WHERE name = %(name)s AND may_do('operator', application) AND epoch_moves()
RETURNING name;


-- name: find_port
SELECT id, state, host_id, group_name, class = 'orchestration', application
  FROM service
 WHERE name = %(name)s AND deployed AND class <> 'messaging isolated';


-- name: find_group_state
SELECT state, application FROM send_port_group WHERE name = %(name)s AND deployed;


-- name: find_location_enabled
SELECT enabled, application FROM receive_location WHERE name = %(name)s AND deployed;


-- name: set_location_enabled
-- takes: name text, enabled boolean
-- gives: id integer
-- With a new token of locations, by which those that receive hear of it.
WITH changed AS (
    UPDATE receive_location
       SET enabled = %(enabled)s
     WHERE name = %(name)s AND %(enabled)s IS NOT NULL AND may_do('operator', application) AND epoch_moves()
    RETURNING id
), told AS (
    UPDATE box SET location_token = gen_random_uuid() WHERE EXISTS (SELECT FROM changed)
)
SELECT id FROM changed;


-- name: list_subscribing
-- Ports, orchestrations and groups of an application, the groups last: a group can be enlisted once one of its ports is.
SELECT kind, name, state, id, host_id
  FROM (SELECT CASE class WHEN 'orchestration' THEN 'orchestration' ELSE 'port' END AS kind, name, state, id, host_id
          FROM service
         WHERE application = %(application)s AND deployed AND group_name IS NULL AND class <> 'messaging isolated'
         UNION ALL
        SELECT 'group', name, state, NULL, NULL
          FROM send_port_group
         WHERE application = %(application)s AND deployed) AS artefact
 ORDER BY kind = 'group', kind DESC, name;


-- name: list_members_of
-- Of members of groups their port and their group.
SELECT id, port_id, group_name FROM service WHERE id = ANY (%(service)s);


-- name: list_receiving
-- Receive locations of an application, and whether they are enabled.
SELECT name, enabled FROM receive_location WHERE application = %(application)s AND deployed ORDER BY name;


-- name: set_application_enabled
-- takes: application text, enabled boolean
-- gives: id integer
WITH changed AS (
    UPDATE receive_location
       SET enabled = %(enabled)s
     WHERE application = %(application)s AND deployed AND enabled <> %(enabled)s AND may_do('operator', application)
       AND epoch_moves()
    RETURNING id
), told AS (
    UPDATE box SET location_token = gen_random_uuid() WHERE EXISTS (SELECT FROM changed)
)
SELECT id FROM changed;


-- name: list_kinds
-- What there is of a name that a person gives.
SELECT EXISTS (SELECT FROM service WHERE name = %(name)s AND deployed AND class <> 'messaging isolated')
    OR EXISTS (SELECT FROM send_port_group WHERE name = %(name)s AND deployed) AS subscribes,
       EXISTS (SELECT FROM receive_location WHERE name = %(name)s AND deployed) AS receives,
       EXISTS (SELECT FROM application WHERE name = %(name)s AND deployed) AS is_application;
