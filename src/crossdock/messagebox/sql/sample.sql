-- How the MessageBox is, for whoever watches it. What is taken costs the same however much waits: see docs/decisions/0050.


-- name: list_sampled_tables
-- The tables to look into: how many pages each has, and how many rows by the server's own statistics. After a crash the
-- server has none of those, and then they are null.
SELECT host.id, place.name, pg_relation_size(place.relation) / current_setting('block_size')::bigint,
       CASE WHEN pg_stat_get_tuples_inserted(place.relation) > 0 THEN pg_stat_get_live_tuples(place.relation) END
  FROM host
 CROSS JOIN LATERAL (SELECT name, to_regclass(name || '_' || host.id)::oid AS relation
                       FROM unnest(ARRAY['queue', 'claimed', 'scheduled', 'suspended', 'instance']) AS name) AS place
 UNION ALL
SELECT 0, name, pg_relation_size(name::regclass) / current_setting('block_size')::bigint,
       CASE WHEN pg_stat_get_tuples_inserted(name::regclass) > 0 THEN pg_stat_get_live_tuples(name::regclass) END
  FROM unnest(ARRAY['intake', 'message']) AS name;


-- name: sample_host
-- What one host holds, by service: all of it, or what is on the given share of the pages, in percent. The age is that of the
-- reference that has waited longest among these, in seconds; times that cannot be are left out.
WITH ready AS MATERIALIZED (
    SELECT queue.service_id, queue.sequence, queue.message_id,
           coalesce(lease.blocked_until > clock(), false) AS blocked
      FROM {queue} AS queue TABLESAMPLE SYSTEM (%(queue)s)
      LEFT JOIN subqueue_lease AS lease ON queue.subqueue > 0 AND lease.service_id = queue.subqueue
), found AS (
    SELECT service_id, blocked, count(*) AS count, min(sequence) AS lowest
      FROM ready
     GROUP BY service_id, blocked
)
SELECT CASE WHEN found.blocked THEN 'blocked' ELSE 'queue' END AS place, found.service_id, '' AS kind, '' AS code, found.count,
       (SELECT greatest(extract(epoch FROM clock() - message.created_at), 0)::float8
          FROM message
         WHERE message.id = first.message_id AND message.created_at > '-infinity') AS age
  FROM found
  JOIN ready AS first ON first.sequence = found.lowest
 UNION ALL
SELECT 'claimed', service_id, '', '', count(*), NULL
  FROM {claimed} AS claimed TABLESAMPLE SYSTEM (%(claimed)s)
 GROUP BY service_id
 UNION ALL
SELECT 'scheduled', service_id, '', '', count(*), NULL
  FROM {scheduled} AS scheduled TABLESAMPLE SYSTEM (%(scheduled)s)
 GROUP BY service_id
 UNION ALL
SELECT 'suspended', service_id, kind, code, count(*),
       greatest(extract(epoch FROM clock() - min(suspended_at) FILTER (WHERE suspended_at > '1970-01-01Z')), 0)::float8
  FROM {suspended} AS suspended TABLESAMPLE SYSTEM (%(suspended)s)
 GROUP BY service_id, kind, code
 UNION ALL
SELECT 'instance', service_id, state, coalesce(code, ''), count(*),
       greatest(extract(epoch FROM clock() - min(since) FILTER (WHERE since > '1970-01-01Z')), 0)::float8
  FROM {instance} AS instance TABLESAMPLE SYSTEM (%(instance)s)
 GROUP BY service_id, state, coalesce(code, '');


-- name: sample_intake
-- What is listed and not published, by location, likewise; and what of it could not be read.
SELECT location_id, count(*), count(*) FILTER (WHERE failures > 0),
       greatest(extract(epoch FROM clock() - min(listed_at)), 0)::float8
  FROM intake TABLESAMPLE SYSTEM (%(intake)s)
 WHERE (SELECT true FROM publication WHERE intake_sequence = intake.sequence AND last LIMIT 1) IS NULL
 GROUP BY location_id;


-- name: count_spool
-- Exactly: asked where there are few pages only.
SELECT count(*) FROM message;


-- name: sample_services
-- The busiest services, with what has become of their references, but for what is not folded yet: those that had most to do
-- lately or hold most now, and then the oldest. Of a hundred thousand only so many are looked at.
WITH busy AS (
    SELECT service_id AS id, sum(tried) AS tried
      FROM ((SELECT service_id, sum(delivered + retried + suspended) AS tried
               FROM delivery_minute
              WHERE minute > clock() - %(lately)s::interval
              GROUP BY service_id
              ORDER BY tried DESC
              LIMIT %(most)s)
             UNION ALL
            SELECT * FROM unnest(%(service)s::integer[], %(held)s::bigint[])
             UNION ALL
            (SELECT id, 0 FROM service ORDER BY id LIMIT %(most)s)) AS found (service_id, tried)
     GROUP BY service_id
)
SELECT service.id, service.name, service.application, service.class, host.name,
       CASE WHEN service.deployed THEN service.state ELSE 'unenlisted' END AS state,
       coalesce(total.count, 0), coalesce(total.retried, 0), coalesce(total.suspended, 0)
  FROM busy
  JOIN service ON service.id = busy.id
  JOIN host ON host.id = service.host_id
  LEFT JOIN delivery_total AS total ON total.service_id = service.id
 ORDER BY busy.tried DESC, service.id
 LIMIT %(most)s;


-- name: sample_locations
-- The busiest receive locations, likewise.
WITH busy AS (
    SELECT location_id AS id, sum(received) AS received
      FROM ((SELECT location_id, sum(received) AS received
               FROM publication_minute
              WHERE minute > clock() - %(lately)s::interval
              GROUP BY location_id
              ORDER BY received DESC
              LIMIT %(most)s)
             UNION ALL
            (SELECT id, 0 FROM receive_location ORDER BY id LIMIT %(most)s)) AS found (location_id, received)
     GROUP BY location_id
)
SELECT receive_location.id, receive_location.name, receive_location.application, receive_location.enabled,
       coalesce(total.received, 0), coalesce(total.published, 0), coalesce(total.unrouted, 0), coalesce(total.suspended, 0)
  FROM busy
  JOIN receive_location ON receive_location.id = busy.id
  LEFT JOIN publication_total AS total ON total.location_id = receive_location.id
 ORDER BY busy.received DESC, receive_location.id
 LIMIT %(most)s;


-- name: sample_totals
-- What has gone through since the MessageBox was created, but for what is not folded yet; and how large it is.
SELECT (SELECT coalesce(sum(received), 0)::bigint FROM publication_total),
       (SELECT coalesce(sum(published), 0)::bigint FROM publication_total),
       (SELECT coalesce(sum(unrouted), 0)::bigint FROM publication_total),
       (SELECT coalesce(sum(suspended), 0)::bigint FROM publication_total),
       (SELECT coalesce(sum(count), 0)::bigint FROM delivery_total),
       (SELECT coalesce(sum(retried), 0)::bigint FROM delivery_total),
       (SELECT coalesce(sum(suspended), 0)::bigint FROM delivery_total),
       pg_database_size(current_database()),
       (SELECT count(*) FROM service),
       clock();


-- name: list_lives
-- The hosts with their instances that live, by state: as `list_hosts`, without what waits for them.
SELECT host.id, host.name, life.state, count(life.state), coalesce(sum(life.in_hand), 0)::bigint
  FROM host
  LEFT JOIN (SELECT host_id, in_hand,
                    CASE WHEN state <> 'stopping' AND clock() NOT BETWEEN seen_at - %(silence)s::interval
                                                                      AND seen_at + %(silence)s::interval
                         THEN 'silent'
                         ELSE state END AS state
               FROM host_instance
              WHERE EXISTS (SELECT
                              FROM pg_locks
                             WHERE locktype = 'advisory'
                               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                               AND classid = %(lock)s::integer::oid
                               AND objid = host_instance.id::oid
                               AND objsubid = 2
                               AND granted)) AS life ON life.host_id = host.id
 GROUP BY host.id, host.name, life.state
 ORDER BY host.id, life.state;


-- name: sample_age
-- How old the newest sample is, in seconds; no row if there is none. The role of a host may know that, and no more.
SELECT greatest(extract(epoch FROM clock() - at), 0)::float8 FROM sample_time;


-- name: keep_sample
-- The newest has the details, the others have had them; what is older than an hour is forgotten.
WITH forgotten AS (
    DELETE FROM sample WHERE at < clock() - %(kept)s::interval
), stripped AS (
    UPDATE sample SET details = NULL WHERE details IS NOT NULL AND at >= clock() - %(kept)s::interval
)
INSERT INTO sample (box, details) VALUES (%(box)s, %(details)s);


-- name: newest_sample
SELECT number, at, box::text, details::text, greatest(extract(epoch FROM clock() - at), 0)::float8
  FROM sample
 ORDER BY number DESC
 LIMIT 1;


-- name: newest_sample_number
SELECT coalesce(max(number), 0) FROM sample;


-- name: forget_minutes
-- A few minutes of those that are too old.
WITH published AS (
    DELETE FROM publication_minute
     WHERE minute < clock() - %(kept)s::interval
       AND minute < (SELECT min(minute) FROM publication_minute) + interval '10 minutes'
)
DELETE FROM delivery_minute
 WHERE minute < clock() - %(kept)s::interval
   AND minute < (SELECT min(minute) FROM delivery_minute) + interval '10 minutes';
