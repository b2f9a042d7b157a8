-- Whoever has a right, and the role of every host, writes acts into the audit, and nobody deletes them. Texts are cut as lists
-- show them. Facts that are longer become the beginning of their text: short enough that a list reads it with all its quotes
-- escaped. What is there is not looked at again.

CREATE OR REPLACE FUNCTION audit(
    action text, target text, before jsonb, after jsonb, outcome text, application text DEFAULT NULL,
    service_number integer DEFAULT NULL
) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, crossdock, pg_temp
BEGIN ATOMIC
    INSERT INTO audit (person, action, application, target, before, after, reason, outcome)
    SELECT left(coalesce(nullif(current_setting('crossdock.person', true), ''), session_user), 1000), left($1, 1000),
           left(coalesce($6, (SELECT service.application FROM service WHERE service.id = $7)), 1000), left($2, 10000),
           CASE WHEN length($3::text) > 100000 THEN to_jsonb(left($3::text, 49000)) ELSE $3 END,
           CASE WHEN length($4::text) > 100000 THEN to_jsonb(left($4::text, 49000)) ELSE $4 END,
           left(nullif(current_setting('crossdock.reason', true), ''), 10000), left($5, 1000)
    RETURNING number;
END;

ALTER TABLE audit ADD CONSTRAINT the_texts_of_an_act_are_short
    CHECK (greatest(octet_length(person), octet_length(action), octet_length(application), octet_length(outcome)) <= 4096
           AND greatest(octet_length(target), octet_length(reason)) <= 65536
           AND greatest(octet_length(before::text), octet_length(after::text)) <= 1048576) NOT VALID;
