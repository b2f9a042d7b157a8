-- What settles references appends to one log and touches no other: cleanup has the closed one to itself while it adds it up.
CREATE FUNCTION drop_references(messages uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT message FROM reference_log) = 1 THEN
        INSERT INTO message_ref_log_1 SELECT id, -1 FROM unnest(messages) AS reference (id);
    ELSE
        INSERT INTO message_ref_log_2 SELECT id, -1 FROM unnest(messages) AS reference (id);
    END IF;
END $$;
COMMENT ON FUNCTION drop_references IS 'one reference less to each of these messages, in the log that is being written';
