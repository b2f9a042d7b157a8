-- Tables of ours that are large though nearly nothing is in them, with their size. PostgreSQL gives back what is empty at
-- the end of a table; but not if the last rows were deleted just while it looked, and then it does not look again for so few.
-- Where many are dead it will look again; while somebody's old transaction keeps them, nothing can be given back anyway.
SELECT relname, pg_relation_size(relid)
  FROM pg_stat_user_tables
 WHERE schemaname = current_schema()
   AND n_live_tup < %(rows)s
   AND n_dead_tup < %(rows)s
   AND pg_relation_size(relid) > %(bytes)s;
