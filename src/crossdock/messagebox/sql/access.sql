-- Who may do what.


-- name: read_rights
-- As whom the session was opened, whether that is the owner or a member of it, and the rights that it has been given. `what`
-- is null where it has none.
SELECT session_user::text, pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass), 'MEMBER'),
       given.what, given.application
  FROM (SELECT) AS session
  LEFT JOIN (SELECT access.what, place.application
               FROM unnest(ARRAY['viewer', 'operator', 'bodies', 'edit']) AS access (what),
                    (SELECT NULL AS application UNION ALL SELECT name FROM application) AS place
              WHERE coalesce(pg_has_role(session_user, to_regrole(access_role(access.what, place.application))::oid, 'MEMBER'),
                             false)) AS given ON true;


-- name: read_ownership
-- The same of a MessageBox of any version, also to somebody without a right. No row: there is none yet.
SELECT session_user::text, pg_has_role(session_user, relowner, 'MEMBER')
  FROM pg_class
 WHERE relname = 'box' AND relkind = 'r' AND relnamespace = to_regnamespace('crossdock');


-- name: may_operate
SELECT may_do('operator', %(application)s);


-- name: list_access
-- Who was given which right, for all applications or for one.
SELECT member.rolname AS database_user, access.what AS access, place.application
  FROM unnest(ARRAY['viewer', 'operator', 'bodies', 'edit', 'administrator']) AS access (what)
 CROSS JOIN (SELECT NULL AS application UNION ALL SELECT name FROM application) AS place
  JOIN pg_auth_members ON pg_auth_members.roleid
       = CASE WHEN access.what <> 'administrator' THEN to_regrole(access_role(access.what, place.application))::oid
              WHEN place.application IS NULL THEN (SELECT relowner FROM pg_class WHERE oid = 'box'::regclass) END
  JOIN pg_roles AS member ON member.oid = pg_auth_members.member
 WHERE NOT starts_with(member.rolname, (SELECT format('crossdock_%%s_', to_hex(number)) FROM box))
 ORDER BY member.rolname, access.what, place.application;


-- name: is_application
SELECT FROM application WHERE name = %(application)s;


-- name: find_user
SELECT rolsuper FROM pg_roles WHERE rolname = %(user)s;


-- name: create_access_role
SELECT create_access_role(%(what)s, %(application)s);


-- name: access_role
SELECT access_role(%(what)s, %(application)s), to_regrole(access_role(%(what)s, %(application)s)) IS NOT NULL;


-- name: read_owner
SELECT relowner::regrole::text FROM pg_class WHERE oid = 'box'::regclass;


-- name: become_owner
-- An administrator is a member of the owner, and works as the owner does: what is created belongs to that. Somebody who may do
-- everything on the server stays what it is.
SELECT set_config('role', owner.name, false)
  FROM (SELECT relowner::regrole::text AS name, relowner AS oid FROM pg_class WHERE oid = to_regclass('box')) AS owner
 WHERE current_user = session_user
   AND pg_has_role(session_user, owner.oid, 'MEMBER')
   AND session_user::text <> owner.name
   AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = session_user);


-- name: quote_name
-- A name as SQL writes it: in quotes only where it needs them.
SELECT quote_ident(%(name)s);
