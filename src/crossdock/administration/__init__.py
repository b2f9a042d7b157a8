"""What an operator can ask and do. Read `service.py` first: every face stands on it and on nothing below it."""
