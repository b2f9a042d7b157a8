-- A receive location as its application declares it. One that an operator disabled stays disabled.
INSERT INTO receive_location (name, application, host_id, definition)
VALUES (%s, %s, create_host(%s), %s)
    ON CONFLICT (name) DO UPDATE
   SET host_id = excluded.host_id, definition = excluded.definition, deployed = true,
       enabled = CASE WHEN receive_location.deployed THEN receive_location.enabled ELSE true END;
