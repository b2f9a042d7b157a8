"""The MessageBox in PostgreSQL: `agent.py` is the only door; `schema.sql` shows the tables, `sql/` the statements."""
