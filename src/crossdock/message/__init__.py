"""What travels: read `message.py` first, then `context.py`, `property.py` and `schema.py`."""
