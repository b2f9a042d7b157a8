"""The bulk lane on Spark, and the only folder that imports pyspark: `session.py` starts it, `source.py` reads the
ledger, `receive.py` is the query, `worker.py` its one pass from bytes to published messages."""
