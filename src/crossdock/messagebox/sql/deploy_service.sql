-- A send port as its application declares it: made on the first deployment, brought up to date on the next. One that was
-- gone for a while begins anew; one that an operator stopped stays stopped.
INSERT INTO service (name, application, host_id, priority, ordered, two_way, definition, predicate)
VALUES (%(name)s, %(application)s, create_host(%(host)s), %(priority)s, %(ordered)s, %(two_way)s, %(definition)s,
        %(predicate)s)
    ON CONFLICT (name) DO UPDATE
   SET host_id = excluded.host_id, priority = excluded.priority, ordered = excluded.ordered, two_way = excluded.two_way,
       definition = excluded.definition, predicate = excluded.predicate, deployed = true,
       state = CASE WHEN service.deployed THEN service.state ELSE 'started' END
RETURNING id, state, host_id;
