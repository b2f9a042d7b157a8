-- Who did what.


-- name: record_acts
-- In the transaction of the acts. The application of an act is given, or is that of a service.
SELECT audit(act.action, act.target, act.before, act.after, act.outcome, act.application, act.service_id)
  FROM ROWS FROM (jsonb_to_recordset(%(act)s::jsonb)
                  AS (action text, target text, before jsonb, after jsonb, outcome text, application text, service_id integer))
       WITH ORDINALITY AS act (action, target, before, after, outcome, application, service_id, place)
 ORDER BY act.place;


-- name: list_audit
-- The newest first, `before` a row that was listed. `since` is a time that a person named, not one that a process asked for.
-- Whoever may do anything adds rows of any size by the function, and nobody takes them out: every list has to bear them.
SELECT number, at, database_user, left(person, 4000) AS person, left(action, 4000) AS action,
       left(application, 4000) AS application, left(target, 4000) AS target,
       CASE WHEN length(before::text) <= 1000000 THEN before::text ELSE left(before::text, 1) END AS before,
       CASE WHEN length(after::text) <= 1000000 THEN after::text ELSE left(after::text, 1) END AS after,
       left(reason, 4000) AS reason, left(outcome, 4000) AS outcome
  FROM audit
 WHERE (%(since)s::text IS NULL OR at >= %(since)s::text::timestamptz)
   AND (%(age)s::interval IS NULL OR at >= clock() - %(age)s::interval)
   AND (%(person)s::text IS NULL OR person = %(person)s::text)
   AND (%(action)s::text IS NULL OR action = %(action)s::text)
   AND (%(before)s::bigint IS NULL OR number < %(before)s::bigint)
 ORDER BY number DESC
 LIMIT %(limit)s;
