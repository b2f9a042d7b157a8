"""Bytes into messages: `receive.py` runs a pipeline; `json.py` takes JSON apart and finds fields in it."""
