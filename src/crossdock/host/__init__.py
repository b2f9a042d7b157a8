"""Host instances: read `instance.py`, then follow a reference: claimer, dispatcher, backlog, delivery, settler."""
