-- A message is stored with the number of references it is given, and a part with one: publishing appends nothing to the logs
-- any more. What was published before has its references there, and was given none.
ALTER TABLE message ADD COLUMN given integer NOT NULL DEFAULT 0;
ALTER TABLE message ALTER COLUMN given DROP DEFAULT;
ALTER TABLE part ADD COLUMN given integer NOT NULL DEFAULT 0;
ALTER TABLE part ALTER COLUMN given SET DEFAULT 1;
COMMENT ON COLUMN message.given IS 'references it was published with; what came and went since is in the logs, until there is a total';
COMMENT ON COLUMN part.given IS 'messages it was stored with; likewise';

-- Another name: the cleanup of a version that knows nothing of `given` fails, instead of counting wrongly.
ALTER TABLE message_ref_total RENAME COLUMN total TO living;
ALTER TABLE part_ref_total RENAME COLUMN total TO living;
-- So that the constraint, which has a name in PostgreSQL 18, has the new one.
ALTER TABLE message_ref_total ALTER COLUMN living DROP NOT NULL, ALTER COLUMN living SET NOT NULL;
ALTER TABLE part_ref_total ALTER COLUMN living DROP NOT NULL, ALTER COLUMN living SET NOT NULL;

CREATE OR REPLACE FUNCTION publish_few(
    message_ids uuid[], contexts json[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[],
    hosts smallint[], lines integer[], priorities smallint[], references_to uuid[], subscriptions bigint[],
    services integer[], publishing integer, matched bigint, read_by bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- First something is written, and the transaction has its number, before the references draw theirs.
    INSERT INTO message (id, context, part_count, parts, given)
    SELECT message.id, message.context, cardinality(own.parts), own.parts, cardinality(array_positions(references_to, message.id))
      FROM unnest(message_ids, contexts) AS message (id, context)
     CROSS JOIN LATERAL (SELECT ARRAY(SELECT part.id
                                        FROM unnest(part_of, part_ids) WITH ORDINALITY AS part (message_id, id, number)
                                       WHERE part.message_id = message.id
                                       ORDER BY part.number) AS parts) AS own;
    INSERT INTO part (id, name, body, size, fragments)
    SELECT part.id, part.name, part.body, length(part.body), 0 FROM unnest(part_ids, names, bodies) AS part (id, name, body);
    INSERT INTO queue (host_id, line, priority, message_id, subscription_id, service_id)
    SELECT * FROM unnest(hosts, lines, priorities, references_to, subscriptions, services);
    PERFORM check_epoch(publishing, matched, read_by);
END $$;
