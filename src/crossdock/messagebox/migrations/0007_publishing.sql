-- PostgreSQL goes through a table when much was inserted, to make later scans of it quicker. Messages and parts are found
-- by their ids and do not stay; going through them while they come takes a twentieth of what publishing has.
ALTER TABLE message SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE part SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE message_ref_log_1 SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE message_ref_log_2 SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE part_ref_log_1 SET (autovacuum_vacuum_insert_threshold = -1);
ALTER TABLE part_ref_log_2 SET (autovacuum_vacuum_insert_threshold = -1);

-- A total is negative where references were taken away in a log that was summed before the one that gave them.
DROP INDEX message_ref_total_message_id_idx;
DROP INDEX part_ref_total_part_id_idx;
CREATE INDEX ON message_ref_total (message_id) WHERE total <= 0;
CREATE INDEX ON part_ref_total (part_id) WHERE total <= 0;
