"""Host instances: `instance.py` dequeues under lock, hands to a service and settles the outcome."""
