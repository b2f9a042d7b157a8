"""What the parts of an engine share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crossdock.host.limits import HostLimits
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.settle import Settlement
from crossdock.orchestration.program import Programs
from crossdock.orchestration.runs import Runs
from crossdock.orchestration.samples import Samples

Persist = Callable[[Callable[[], object]], bool]


@dataclass(frozen=True, slots=True)
class EngineEnvironment:
    """Made once for each engine. `persist` calls until PostgreSQL is there, or the engine has to stop."""

    agent: Agent
    host_id: int
    limits: HostLimits
    persist: Persist
    programs: Programs
    runs: Runs = field(default_factory=Runs)
    samples: Samples = field(default_factory=Samples)

    def settle(self, host_instance: int, settlements: Iterable[Settlement]) -> None:
        if outcomes := list(settlements):
            self.persist(lambda: self.agent.settle(host_instance, outcomes))
