-- What the console keeps: tokens by which people sign in, answers that it may have to give again, and saved views.


-- name: find_token
-- takes: sought bytea
-- gives: name text, rights text[]
-- Of a token that has not expired. That it was used is noted, once a minute.
WITH used AS (
    UPDATE api_token
       SET last_used_at = clock()
     WHERE digest = %(sought)s AND (expires_at IS NULL OR expires_at > clock())
       AND (last_used_at IS NULL OR last_used_at < clock() - interval '1 minute')
)
SELECT api_token.name, api_token.rights
  FROM api_token
 WHERE api_token.digest = %(sought)s AND (api_token.expires_at IS NULL OR api_token.expires_at > clock());


-- name: list_tokens
SELECT name, rights, created_at, created_by, expires_at, last_used_at,
       coalesce(expires_at <= clock(), false) AS expired
  FROM api_token
 ORDER BY name;


-- name: create_token
INSERT INTO api_token (name, digest, rights, created_by, expires_at)
VALUES (%(name)s, %(digest)s, %(rights)s, %(person)s, clock() + %(lifetime)s::interval)
    ON CONFLICT DO NOTHING
RETURNING expires_at;


-- name: revoke_token
DELETE FROM api_token WHERE name = %(name)s RETURNING rights;


-- name: begin_answer
-- No row if there is one already. Those of yesterday go.
WITH forgotten AS (
    DELETE FROM api_answer WHERE at < clock() - interval '1 day' AND (person, key) <> (%(person)s, %(key)s)
)
INSERT INTO api_answer (person, key, request)
VALUES (%(person)s, %(key)s, %(request)s)
    ON CONFLICT (person, key) DO UPDATE
       SET request = excluded.request, status = NULL, content = NULL, headers = NULL, at = clock()
     WHERE api_answer.at < clock() - interval '1 day'
RETURNING at;


-- name: find_answer
SELECT request, status, content, headers FROM api_answer WHERE person = %(person)s AND key = %(key)s;


-- name: keep_answer
UPDATE api_answer
   SET status = %(status)s, content = %(content)s, headers = %(headers)s::jsonb
 WHERE person = %(person)s AND key = %(key)s;


-- name: drop_answer
DELETE FROM api_answer WHERE person = %(person)s AND key = %(key)s;


-- name: list_views
SELECT id, name, query, saved_at
  FROM saved_view
 WHERE database_user = session_user AND person = %(person)s
 ORDER BY name;


-- name: find_view
-- takes: sought uuid
-- gives: id uuid, name text, query text, saved_at timestamptz
-- Whoever it belongs to: its id is as long as a token, and only who was given the link knows it.
SELECT id, name, query, saved_at FROM saved_view WHERE id = %(sought)s;


-- name: save_view
-- A view that is saved again keeps its id, so that links to it go on. No row if the person has as many as it may have.
INSERT INTO saved_view (person, name, query)
SELECT %(person)s, %(name)s, %(query)s
 WHERE (SELECT count(*) FROM saved_view
         WHERE database_user = session_user AND person = %(person)s AND name <> %(name)s) < %(most)s
    ON CONFLICT ON CONSTRAINT names_of_one_person_differ DO UPDATE
       SET query = excluded.query, saved_at = clock()
RETURNING id, name, query, saved_at;


-- name: delete_view
DELETE FROM saved_view
 WHERE database_user = session_user AND person = %(person)s AND name = %(name)s
RETURNING id;
