"""Receive ports and locations: `location.py` turns a source into an interchange, `intake.py` keeps the ledger."""
