-- These found a subscriber: the reference that kept them is replaced, and the report of their failure is void.
WITH routed AS (
    DELETE FROM suspended
     WHERE message_id = ANY(%(message)s) AND kind = 'unrouted'
)
DELETE FROM routing_failure
 WHERE message_id = ANY(%(message)s);
