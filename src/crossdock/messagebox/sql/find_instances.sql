-- The running instances that wait for messages with these correlation values, in the order in which everybody locks them.
-- Until the publisher commits nobody ends them; whoever ends one then finds the reference it was given.
SELECT waiting.hash, waiting.id, waiting.instance_id, waiting.service_id, service.name, waiting.host_id, waiting.priority,
       waiting.bound_to, host.labels
  FROM instance_subscription AS waiting
  JOIN service ON service.id = waiting.service_id
  JOIN host ON host.id = waiting.host_id
 WHERE waiting.hash = ANY(%(hash)s)
 ORDER BY waiting.id + 0 -- or they might all be read in the order of their ids, to save sorting the few that match
   FOR KEY SHARE OF waiting;
