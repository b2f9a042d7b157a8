-- Whether the table can be found from here.
SELECT to_regclass('crossdock_delivery') IS NOT NULL;
