"""Bytes into messages: `receive.py` runs the stages, `build.py` makes a pipeline; then one file per format or stage."""
