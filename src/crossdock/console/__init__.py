"""The pages of the console, over `administration/` and the doors of `api/`. Read `pages.py` first."""
