"""Files in folders: read `adapter.py` first, then `complete.py` (what may be read), `write.py` (how it appears)."""
