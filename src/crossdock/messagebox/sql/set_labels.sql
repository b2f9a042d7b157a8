-- The labels of a host; its subscriptions have changed with them.
WITH labelled AS (
    UPDATE host
       SET labels = %(labels)s
     WHERE id = create_host(%(host)s) AND labels <> %(labels)s
    RETURNING id
)
UPDATE subscription
   SET epoch = %(epoch)s
  FROM labelled
 WHERE subscription.host_id = labelled.id;
