"""The declared application: `model.py` is what YAML and Python both build, `deploy.py` turns it into what the
MessageBox keeps, and `runtime.py` is the only place that wires the parts together."""
