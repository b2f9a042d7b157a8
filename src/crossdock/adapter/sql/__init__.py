"""Rows of databases: `receive.py` reads them, `send.py` writes them, `delivery.py` remembers what was written."""
