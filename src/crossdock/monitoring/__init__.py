"""What others may read of a running process: `metrics.py` names every figure, `watch.py` has it, `server.py` tells."""
