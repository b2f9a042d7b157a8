-- Who did what.


-- name: record_acts
-- In the transaction of the acts. The application of an act is given, or is that of a service.
SELECT audit(act.action, act.target, act.before, act.after, act.outcome, act.application, act.service_id)
  FROM ROWS FROM (jsonb_to_recordset(%(act)s::jsonb)
                  AS (action text, target text, before jsonb, after jsonb, outcome text, application text, service_id integer))
       WITH ORDINALITY AS act (action, target, before, after, outcome, application, service_id, place)
 ORDER BY act.place;


-- name: list_audit
-- The newest first, `before` a row that was listed. `since` is a time that a person named, not one that a process asked for. Who
-- has any right adds rows of any size and any JSON, and nobody deletes them: they are cut, and Python reads what it can.
SELECT number, at, database_user, left(person, 1000) AS person, left(action, 1000) AS action,
       left(application, 1000) AS application, left(target, 10000) AS target, left(before::text, 100000) AS before,
       left(after::text, 100000) AS after, left(reason, 10000) AS reason, left(outcome, 1000) AS outcome
  FROM audit
 WHERE (%(since)s::text IS NULL OR at >= %(since)s::text::timestamptz)
   AND (%(age)s::interval IS NULL OR at >= clock() - %(age)s::interval)
   AND (%(person)s::text IS NULL OR person = %(person)s::text)
   AND (%(action)s::text IS NULL OR action = %(action)s::text)
   AND (%(before)s::bigint IS NULL OR number < %(before)s::bigint)
 ORDER BY number DESC
 LIMIT %(limit)s;
