"""What an operator can ask and do: `service.py` answers the command line, `doctor.py` checks the parts."""
