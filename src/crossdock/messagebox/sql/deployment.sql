-- What an application deploys, and what moves with it.


-- name: list_deployed
-- What is deployed under these names, in the form a deployment would store it, so that only what differs is touched.
SELECT service.name, host.name, service.priority, service.ordered, service.two_way, service.definition, service.predicate
  FROM service
  JOIN host ON host.id = service.host_id
 WHERE service.name = ANY(%(names)s) AND service.deployed;


-- name: deploy_service
-- A service as its application declares it: made on the first deployment, brought up to date on the next. A send port that
-- was gone for a while begins anew; one that an operator stopped stays stopped. A member of a group follows its group and
-- its port, and whoever waits for responses has no subscription but those of its instances.
INSERT INTO service (name, application, host_id, priority, ordered, two_way, definition, predicate, class, group_name,
                     port_id, state)
SELECT %(name)s, %(application)s, create_host(%(host)s), %(priority)s, %(ordered)s, %(two_way)s, %(definition)s,
       %(predicate)s, %(class)s, %(group)s, (SELECT id FROM service WHERE name = %(port)s),
       CASE WHEN %(starts)s THEN 'started' ELSE 'unenlisted' END
    ON CONFLICT (name) DO UPDATE
   SET host_id = excluded.host_id, priority = excluded.priority, ordered = excluded.ordered, two_way = excluded.two_way,
       definition = excluded.definition, predicate = excluded.predicate, class = excluded.class,
       group_name = excluded.group_name, port_id = excluded.port_id, deployed = true,
       state = CASE WHEN service.deployed THEN service.state ELSE excluded.state END
RETURNING id, state, host_id;


-- name: deploy_group
-- A group of send ports. One that was gone for a while begins anew; one that an operator stopped stays stopped.
INSERT INTO send_port_group (name, application)
VALUES (%(name)s, %(application)s)
    ON CONFLICT (name) DO UPDATE
   SET deployed = true,
       state = CASE WHEN send_port_group.deployed THEN send_port_group.state ELSE 'started' END;


-- name: deploy_location
-- A receive location as its application declares it. One that an operator disabled stays disabled.
INSERT INTO receive_location (name, application, host_id, definition)
VALUES (%s, %s, create_host(%s), %s)
    ON CONFLICT (name) DO UPDATE
   SET host_id = excluded.host_id, definition = excluded.definition, deployed = true,
       enabled = CASE WHEN receive_location.deployed THEN receive_location.enabled ELSE true END;


-- name: follow_port
-- Members that were taken out of their group go where their port goes: what they were given waits in its subqueue.
UPDATE service AS member
   SET host_id = port.host_id
  FROM service AS port
 WHERE port.id = member.port_id AND member.host_id <> port.host_id
RETURNING member.id, member.host_id;


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
    DELETE FROM queue WHERE service_id = %(service)s AND host_id <> %(host)s AND subqueue >= 0 RETURNING *
), postponed AS (
    DELETE FROM scheduled WHERE service_id = %(service)s AND host_id <> %(host)s AND subqueue >= 0 RETURNING *
), kept AS (
    DELETE FROM suspended
     WHERE service_id = %(service)s AND host_id <> %(host)s AND subqueue >= 0
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
    ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, deployed_at = clock();


-- name: declare_property
INSERT INTO property (name, type) VALUES (%(name)s, %(type)s) ON CONFLICT DO NOTHING;


-- name: create_host
SELECT create_host(%(host)s);


-- name: read_labels
SELECT id, labels FROM host WHERE name = %(host)s;


-- name: withhold_labelled
-- After ports have moved to hosts that have what this one lost.
SELECT withhold_labelled(%(host)s::smallint);


-- name: find_foreign
-- A name that belongs to another application.
SELECT name, application
  FROM (SELECT 'receive_location' AS kind, name, application FROM receive_location
         UNION ALL
        SELECT 'send_port_group', name, application FROM send_port_group
         UNION ALL
        SELECT 'service', name, application FROM service) AS taken
 WHERE kind = %(kind)s AND name = ANY(%(names)s) AND application <> %(application)s
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
UPDATE service SET state = %(state)s WHERE id = %(service)s;


-- name: set_group_state
UPDATE send_port_group SET state = %(state)s WHERE name = %(name)s;


-- name: find_port
SELECT id, state, host_id, group_name
  FROM service
 WHERE name = %(name)s AND deployed AND class <> 'messaging isolated';


-- name: find_group_state
SELECT state FROM send_port_group WHERE name = %(name)s AND deployed;


-- name: find_location_enabled
SELECT enabled FROM receive_location WHERE name = %(name)s AND deployed;


-- name: set_location_enabled
UPDATE receive_location SET enabled = %(enabled)s WHERE name = %(name)s;
