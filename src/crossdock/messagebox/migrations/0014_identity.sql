-- Ids that do not repeat after a restore, in a copy or after a failover: sequences go back, random bits do not. What is
-- listed already keeps the number of the box in the ids of its messages, so that what is half published goes on with them.
ALTER TABLE intake ADD random_bits bigint;
UPDATE intake SET random_bits = (SELECT number FROM box);
ALTER TABLE intake ALTER random_bits SET NOT NULL;
COMMENT ON COLUMN intake.random_bits IS '38 random bits in the ids of its messages, drawn by whoever lists it';
COMMENT ON COLUMN box.number IS '38 random bits that make the names of roles differ between MessageBoxes';

-- The same for host instances: what one claimed before a restore must not be settled by another of the same number.
ALTER TABLE host_instance ALTER id DROP IDENTITY;
COMMENT ON COLUMN host_instance.id IS 'drawn at random by the process, so that it is not given again after a restore';

-- An epoch is known by its token: after a restore another one may get the same number. The history tells whether what
-- changed since an epoch that a process knows is all that differs from it.
CREATE TABLE epoch_history (
    epoch  bigint PRIMARY KEY,
    token  uuid   NOT NULL
);
COMMENT ON TABLE epoch_history IS 'the tokens of the present epoch and of those before it';
INSERT INTO epoch_history (epoch, token) SELECT epoch, epoch_token FROM box;
ALTER TABLE box DROP location_epoch, ADD location_token uuid NOT NULL DEFAULT gen_random_uuid();
COMMENT ON COLUMN box.location_token IS 'changes with every change of receive locations';

DROP FUNCTION publish_few;
DROP FUNCTION check_epoch;
CREATE FUNCTION check_epoch(publishing integer, matched uuid, read_by uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(publishing);
    IF NOT EXISTS (SELECT FROM box WHERE epoch_token = matched AND location_token = coalesce(read_by, location_token)) THEN
        RAISE EXCEPTION 'The epoch has moved.' USING ERRCODE = 'CX001';
    END IF;
END $$;
COMMENT ON FUNCTION check_epoch IS 'the last step of publishing, where the answer is not waited for: it fails if the epoch has moved';

CREATE FUNCTION publish_few(
    message_ids uuid[], contexts json[], part_of uuid[], part_ids uuid[], names text[], bodies bytea[],
    hosts smallint[], lines integer[], priorities smallint[], references_to uuid[], subscriptions bigint[],
    services integer[], publishing integer, matched uuid, read_by uuid
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
COMMENT ON FUNCTION publish_few IS 'a few messages, all of which go to queues: everything that publishing writes, in one round trip';
