-- Indexes of our tables that are large though their table is nearly empty: they keep the pages of rows that are gone.
SELECT index.relname
  FROM pg_index
  JOIN pg_class AS index ON index.oid = pg_index.indexrelid
  JOIN pg_stat_user_tables AS rows ON rows.relid = pg_index.indrelid
 WHERE rows.schemaname = current_schema()
   AND index.relkind = 'i'
   AND pg_relation_size(index.oid) > %(bytes)s
   AND rows.n_live_tup < %(rows)s
   AND pg_relation_size(pg_index.indrelid) < %(bytes)s;
