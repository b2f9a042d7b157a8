"""What travels: read `message.py` first, then `context.py` and `property.py`; `columns.py` is for very many at once."""
