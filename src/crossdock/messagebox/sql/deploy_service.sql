-- A service as its application declares it: made on the first deployment, brought up to date on the next. A send port that
-- was gone for a while begins anew; one that an operator stopped stays stopped. A member of a group follows its group and
-- its port, and whoever waits for responses has no subscription but those of its instances.
INSERT INTO service (name, application, host_id, priority, ordered, two_way, definition, predicate, class, group_name,
                     port_id, state)
SELECT %(name)s, %(application)s, create_host(%(host)s), %(priority)s, %(ordered)s, %(two_way)s, %(definition)s,
       %(predicate)s, %(class)s, %(group)s, (SELECT id FROM service WHERE name = %(port)s),
       CASE WHEN %(starts)s THEN 'started' ELSE 'unenlisted' END
    ON CONFLICT (name) DO UPDATE
   SET host_id = excluded.host_id, priority = excluded.priority, ordered = excluded.ordered, two_way = excluded.two_way,
       definition = excluded.definition, predicate = excluded.predicate, class = excluded.class,
       group_name = excluded.group_name, port_id = excluded.port_id, deployed = true,
       state = CASE WHEN service.deployed THEN service.state ELSE excluded.state END
RETURNING id, state, host_id;
