"""The jobs that keep the MessageBox small and whole, one duty per file: `schedule.py` runs them, each now and then."""
