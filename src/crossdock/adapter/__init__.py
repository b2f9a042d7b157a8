"""How bytes come and go: `contract.py` says what an adapter promises, then one transport per file."""
