"""For the tests of others: suites for adapters of your own. Needs pytest; start with `receive_conformance.py`."""

import pytest

pytest.register_assert_rewrite(
    "crossdock.testing.receive_conformance",
    "crossdock.testing.pushed_conformance",
    "crossdock.testing.send_conformance",
)
