"""Receive ports and locations: `location.py` reads a source, `messages.py` makes its messages, `ranges.py` cuts
large ones, `intake.py` keeps the ledger."""
