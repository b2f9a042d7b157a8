"""What the demo routes: `orders.py` makes the application and its input."""
