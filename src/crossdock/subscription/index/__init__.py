"""Finds matches fast: read `index.py` first, then `build.py` (filters into arrays) and `kernels.py` (the loops)."""
