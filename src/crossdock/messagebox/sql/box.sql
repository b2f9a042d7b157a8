-- The MessageBox itself: its one row, its roles, its locks, and the calls that wake others.


-- name: read_box
-- What a router is loaded for.
SELECT number, epoch, epoch_token, case_sensitive, removals_after FROM box;


-- name: is_created
-- Whether there is a MessageBox.
SELECT to_regclass('box') IS NOT NULL;


-- name: read_case_sensitive
SELECT case_sensitive FROM box;


-- name: read_location_token
-- Changes with every change of receive locations.
SELECT location_token FROM box;


-- name: renew_location_token
UPDATE box SET location_token = gen_random_uuid() RETURNING location_token;


-- name: was_in_epoch
-- Whether this MessageBox was in that epoch.
SELECT FROM epoch_history WHERE epoch = %(epoch)s AND token = %(token)s;


-- name: create_host_role
SELECT create_host_role(%(host)s);


-- name: create_author_role
-- The role under which authors of orchestrations work in our transactions. It has no rights on our schema. Only the owner becomes
-- it, and no host: whoever may become a role puts triggers on its tables, and these run in the session of whoever writes there.
DO $$
DECLARE
    author text := (SELECT format('crossdock_%s_code', to_hex(number)) FROM crossdock.box);
    worker text;
BEGIN
    IF to_regrole(author) IS NULL THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', author);
    END IF;
    -- Also where it is a member already: from PostgreSQL 16 on whoever makes a role may hand it out, and not become it.
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT %I TO %I', author, current_user);
    END IF;
    FOR worker IN SELECT member.rolname
                    FROM crossdock.host
                    JOIN pg_roles AS member ON member.rolname = crossdock.host_role(host.id)
                    JOIN pg_auth_members ON pg_auth_members.member = member.oid
                   WHERE pg_auth_members.roleid = to_regrole(author)::oid LOOP
        EXECUTE format('REVOKE %I FROM %I', author, worker);
    END LOOP;
END $$;


-- name: close_functions
-- Nobody calls a function that runs with the rights of its owner, unless it is granted. PostgreSQL lets everybody, and a dump
-- without privileges forgets that we do not.
DO $$
DECLARE
    place text;
BEGIN
    FOR place IN SELECT proc.oid::regprocedure
                   FROM pg_proc AS proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS allowed
                  WHERE pronamespace = 'crossdock'::regnamespace AND prosecdef AND allowed.grantee = 0 LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', place);
    END LOOP;
END $$;


-- name: read_functions
-- Of which statements the functions of the hosts were made.
SELECT functions FROM box;


-- name: keep_functions
UPDATE box SET functions = %(digest)s;


-- name: list_functions
-- The functions that were made of statements.
SELECT oid::regprocedure::text
  FROM pg_proc
 WHERE pronamespace = 'crossdock'::regnamespace AND obj_description(oid, 'pg_proc') = 'made of a statement';


-- name: hand_over_functions
-- Functions that run with the rights of their owner belong to whoever owns the MessageBox, also where an administrator, who
-- may do more, has made them.
DO $$
DECLARE
    made regprocedure;
BEGIN
    FOR made IN SELECT oid
                  FROM pg_proc
                 WHERE pronamespace = 'crossdock'::regnamespace
                   AND prosecdef
                   AND proowner <> (SELECT relowner FROM pg_class WHERE oid = 'crossdock.box'::regclass) LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO %s', made,
                       (SELECT relowner::regrole FROM pg_class WHERE oid = 'crossdock.box'::regclass));
    END LOOP;
END $$;


-- name: list_hosts_without_functions
SELECT id
  FROM host
 WHERE NOT EXISTS (SELECT
                     FROM pg_proc
                    WHERE pronamespace = 'crossdock'::regnamespace AND proname = format('host_%%s_dequeue', host.id));


-- name: may_copy
-- Whether the database user may write messages and references by itself; the role of a host writes by functions.
SELECT has_table_privilege('message', 'INSERT');


-- name: own_hosts
-- The hosts that the database user may work for.
SELECT own_hosts(current_user);


-- name: host_role
SELECT host_role(%(host)s::smallint);


-- name: may_maintain
-- What the maintenance jobs do; the role of a host may not.
SELECT has_table_privilege('message', 'TRUNCATE');


-- name: lock_alone
-- Until the end of the transaction.
SELECT pg_advisory_xact_lock(%(lock)s);


-- name: lock_shared
-- Until the end of the transaction.
SELECT pg_advisory_xact_lock_shared(%(lock)s);


-- name: set_lock_timeout
-- How long to wait for a lock, until the end of the transaction; 0 is for ever.
SELECT set_config('lock_timeout', %(milliseconds)s::text, true);


-- name: hold_lock_shared
-- Until it is let go, or the session ends.
SELECT pg_advisory_lock_shared(%(lock)s);


-- name: let_go_shared
SELECT pg_advisory_unlock_shared(%(lock)s);


-- name: take_job
-- Whether nobody else runs the job; it is ours until it is ended, or the session ends.
SELECT pg_try_advisory_lock(%(lock)s, %(job)s);


-- name: end_job
SELECT pg_advisory_unlock(%(lock)s, %(job)s);


-- name: announce
-- Inside a transaction it goes out with the commit.
SELECT pg_notify(%(channel)s, '');


-- name: set_for_transaction
SELECT set_config(%(name)s, %(value)s, true);


-- name: list_settings_off
-- Which of these settings of the server are off.
SELECT name FROM pg_settings WHERE name = ANY(%(name)s) AND setting = 'off' ORDER BY name;


-- name: read_transaction
-- The number of the transaction that is open.
SELECT pg_current_xact_id()::text::bigint;


-- name: become_author
-- Until the savepoint is left, or we become ourselves: what authors do in our transactions cannot touch our tables by mistake. Who
-- works under the role of a host has no other rights than that, and keeps it.
SELECT CASE WHEN pg_has_role(session_user, to_regrole(role.name)::oid, 'MEMBER') THEN set_config('role', role.name, true) END,
       set_config('search_path', 'public', true)
  FROM (SELECT format('crossdock_%%s_code', to_hex(number)) AS name FROM box) AS role
 WHERE to_regrole(role.name) IS NOT NULL;


-- name: read_role
-- Whom we act as, to become it again.
SELECT current_setting('role');


-- name: become_ourselves
-- Limits that an author has set for this transaction are meant for its own statements.
SELECT set_config('role', %(role)s, true), set_config('search_path', 'crossdock, pg_temp', true),
       set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true);


-- name: renew_session
-- A session as it was when it began, with the role that it began with. As DISCARD ALL, but for plans, and for prepared
-- statements, which the driver counts on.
CLOSE ALL;
SET SESSION AUTHORIZATION DEFAULT;
RESET ROLE;
RESET ALL;
UNLISTEN *;
SELECT pg_advisory_unlock_all();
DISCARD SEQUENCES;
DISCARD TEMP;


-- name: read_backend
-- The process of the server that serves this session.
SELECT pg_backend_pid();


-- name: wake
-- After the commit: inside a transaction NOTIFY would serialise commits.
SELECT pg_notify(channel, '') FROM unnest(%(channel)s::text[]) AS channel;


-- name: tell
SELECT pg_notify(%(channel)s, %(who)s);


-- name: check_epoch
-- Fails if the epoch has moved since the router, and the receive locations, were read.
SELECT check_epoch(%(lock)s, %(epoch)s, %(location_epoch)s);
