"""Secrets come from the environment where an option says so."""

from __future__ import annotations

import pytest

from crossdock.adapter.secret import secret
from crossdock.errors import TransientError


def test_a_secret_is_read_from_the_environment_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_KEY", "from the environment")

    assert secret("env:ORDERS_KEY") == "from the environment"
    assert secret("as it is") == "as it is"

    monkeypatch.delenv("ORDERS_KEY")
    with pytest.raises(TransientError, match="'ORDERS_KEY' is not set"):
        secret("env:ORDERS_KEY")
