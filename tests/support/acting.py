"""Acts of people on suspended messages, as tests ask for them: by ids, with what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from crossdock.administration import deliveries
from crossdock.administration.deliveries import Outcome, chosen, save
from crossdock.administration.suspended import Selection
from crossdock.messagebox.agent import Agent

__all__ = ["resume", "save", "terminate"]


def resume(agent: Agent, ids: Sequence[str], port: str | None = None, *, everything: bool = False) -> list[Outcome]:
    return list(deliveries.resume(agent, chosen(agent, Selection(ids, port, everything=everything))))


def terminate(agent: Agent, ids: Sequence[str], port: str | None = None, *, everything: bool = False) -> list[Outcome]:
    return list(deliveries.terminate(agent, chosen(agent, Selection(ids, port, everything=everything))))
