"""A console over a MessageBox with something in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console_box import Seeded, seeded
from crossdock.messagebox.agent import Agent
from served import Served, served


@pytest.fixture
def box(agent: Agent) -> Seeded:
    return seeded(agent)


@pytest.fixture
def console(database: str, box: Seeded) -> Iterator[Served]:  # noqa: ARG001 (it is there before anybody asks)
    with served(database) as made:
        yield made
