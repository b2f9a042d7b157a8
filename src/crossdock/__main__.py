"""`python -m crossdock` is the `crossdock` command."""

from crossdock.cli import main

main()
