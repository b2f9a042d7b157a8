"""Send ports: `port.py` hands one message to an adapter and says what came of it."""
