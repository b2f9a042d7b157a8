"""What travels: read `message.py` first, then `context.py` and `property.py`."""
