"""Who gets what: read `predicate.py` first, then `text.py` and `expression.py` (two ways to write a filter), and
`match.py`, which is the meaning; `explain.py` shows it, and `index/` finds the same answers among a million."""
