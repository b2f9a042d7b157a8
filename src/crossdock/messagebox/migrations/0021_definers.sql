-- A function that runs with the owner's rights looks names up in our schema and PostgreSQL's own, wherever its caller looks.
-- The clock names PostgreSQL's function for good: in the default of a column it was looked up by the caller's path.
ALTER FUNCTION count_express SET search_path = pg_catalog, crossdock, pg_temp;
ALTER FUNCTION subqueue_may_go_on SET search_path = pg_catalog, crossdock, pg_temp;
CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN now();
