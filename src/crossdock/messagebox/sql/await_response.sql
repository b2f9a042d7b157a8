-- A running instance waits for a response: in the transaction that publishes its request.
INSERT INTO instance_subscription (instance_id, service_id, host_id, correlation_id, hash, value, bound_to)
VALUES (%(instance)s, %(service)s, %(host)s, %(correlation)s, %(hash)s, %(value)s, %(bound_to)s);
