"""Web requests: `send.py` makes them, `server.py` takes them in, `guard.py` says who is admitted."""
