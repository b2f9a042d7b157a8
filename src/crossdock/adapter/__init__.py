"""How bytes come and go: `contract.py` says what an adapter promises, then one package per transport."""
