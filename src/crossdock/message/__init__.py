"""What travels: read `message.py` first, then `context.py` and `property.py`; `run.py` is for very many at once."""
