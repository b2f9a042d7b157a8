-- Messages that nobody wanted, to be routed again. Locked: their reference is what keeps them here meanwhile.
SELECT host_id, sequence, message_id
  FROM suspended
 WHERE message_id = ANY(%(message)s) AND kind = 'unrouted'
 ORDER BY sequence
   FOR UPDATE;
