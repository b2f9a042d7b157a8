"""How the MessageBox is: what the process that samples it saw last. Asking costs the MessageBox one row."""

from __future__ import annotations

from crossdock.errors import UnavailableError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.sample import HostSample, LocationSample, Sample, ServiceSample, SuspendedSample

__all__ = ["HostSample", "LocationSample", "Sample", "ServiceSample", "SuspendedSample", "read_sample"]


def read_sample(agent: Agent) -> Sample:
    """The newest sample, however old. Raises UnavailableError if there is none, or our user may not read it."""
    sample = agent.samples.newest()
    if sample is None:
        raise UnavailableError(
            "Nobody has looked at this MessageBox yet. Start `crossdock run`, `pipeline` or `host` as its owner."
        )
    return sample
