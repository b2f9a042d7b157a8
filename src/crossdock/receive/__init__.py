"""Receive ports and locations: `location.py` turns a source into a publication, `ranges.py` cuts
large ones, `intake.py` keeps the ledger."""
