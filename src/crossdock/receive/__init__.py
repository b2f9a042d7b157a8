"""Receive ports and locations: `location.py` turns a source into an interchange, `ranges.py` cuts
large ones, `intake.py` keeps the ledger."""
