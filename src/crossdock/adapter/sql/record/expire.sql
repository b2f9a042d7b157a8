-- Forget what nobody delivers again. Not all at once: the first time there may be very many.
DELETE FROM crossdock_delivery
 WHERE ctid = ANY (ARRAY (SELECT ctid
                            FROM crossdock_delivery
                           WHERE delivered_at < now() - CAST(:age AS interval)
                           LIMIT :limit));
