"""What Crossdock is measured with; every figure is per CPU second of one core unless its name says otherwise."""
