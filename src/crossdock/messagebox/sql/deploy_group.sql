-- A group of send ports. One that was gone for a while begins anew; one that an operator stopped stays stopped.
INSERT INTO send_port_group (name, application)
VALUES (%(name)s, %(application)s)
    ON CONFLICT (name) DO UPDATE
   SET deployed = true,
       state = CASE WHEN send_port_group.deployed THEN send_port_group.state ELSE 'started' END;
