-- A number of the ledger for the messages of one process. Drawing alone is not safe from a crash of the server, after which
-- the number could be given again; what is logged with it makes the commit wait until it is on disk.
SELECT nextval(pg_get_serial_sequence('intake', 'sequence')), pg_logical_emit_message(true, 'crossdock', 'number drawn');
