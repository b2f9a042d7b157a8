-- What an instance is about to deliver of that which a dead one had in hand: if it dies too, one of these may be why.
UPDATE host_instance SET delivering = %(sequence)s::bigint[] WHERE id = %(instance)s RETURNING id;
