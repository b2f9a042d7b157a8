-- Until the end of the transaction, only one process makes the table.
SELECT pg_advisory_xact_lock(hashtext('crossdock_delivery'));
