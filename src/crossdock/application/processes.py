"""What a process does: `run` everything, `receive` or `deliver`. Each opens the MessageBox, and ends what it began."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import IO

from crossdock.application.runtime import Progress, Runtime
from crossdock.application.store import Store
from crossdock.errors import HomeInUseError, UnavailableError, UsageError
from crossdock.home import make_home
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.rows import Statistics
from crossdock.settings import Settings

logger = logging.getLogger(__name__)


def run(
    deploy: Callable[[Agent], object], settings: Settings, *, until_idle: bool, stop: Event, progress: Progress
) -> Statistics:
    """Deploy and run everything on this machine until `stop` is set or, with `until_idle`, nothing is left to do.

    `deploy` is given a MessageBox that may not be created yet, or be of an older Crossdock.
    """
    with ExitStack() as stack:
        stack.enter_context(working_in(settings.home))
        store = _opened(stack, settings, any_version=True)
        deploy(store.agent)
        runtime = Runtime(settings, store, progress)
        _work(runtime, stop, until_idle=until_idle)
        runtime.clean_up()
        return runtime.report("stopped")


def receive(settings: Settings, *, stop: Event, progress: Progress) -> Statistics:
    """Receive for everything that is deployed, until `stop` is set; others deliver."""
    with ExitStack() as stack:
        stack.enter_context(working_in(settings.home))
        runtime = Runtime(settings, _opened(stack, settings), progress, hosts=())
        _work(runtime, stop)
        return runtime.report("stopped")


def deliver(settings: Settings, hosts: Sequence[str], *, stop: Event, progress: Progress) -> Statistics:
    """One more instance of each of these hosts, until `stop` is set; others receive."""
    with ExitStack() as stack:
        store = _opened(stack, settings)
        _check_hosts(store.agent, hosts)
        runtime = Runtime(settings, store, progress, receives=False, hosts=hosts)
        _work(runtime, stop)
        return runtime.report("stopped")


def _check_hosts(agent: Agent, names: Sequence[str]) -> None:
    known = agent.configuration.hosts()
    if unknown := sorted(set(names) - set(known)):
        raise UsageError(f"There is no host {unknown[0]!r} (there are: {', '.join(known) or 'none'}).")
    own = agent.box.own_hosts()
    if foreign := [name for name in names if known[name] not in own]:
        raise UnavailableError(
            f"The database user may not work for host {foreign[0]!r}: "
            f"make it a member of the role {agent.box.host_role(known[foreign[0]])}."
        )


def _opened(stack: ExitStack, settings: Settings, *, any_version: bool = False) -> Store:
    store = Store(settings)
    store.open(any_version=any_version)
    stack.callback(store.close)
    for trouble in store.agent.box.troubles():
        logger.warning("%s", trouble)
    return store


def _work(runtime: Runtime, stop: Event, *, until_idle: bool = False) -> None:
    with ExitStack() as parts:
        runtime.start(parts)
        runtime.work(stop, until_idle=until_idle)
        runtime.report("stopping")


@contextmanager
def working_in(home: Path) -> Iterator[None]:
    """Only one run in a home: its Spark files are not to be shared."""
    try:
        if not make_home(home):
            logger.warning("The home %s holds other things too and stays open to others; ours in it is closed", home)
    except OSError as error:
        raise UnavailableError(f"The home {home} cannot be made: {error.strerror}. Choose another --home.") from error
    lock = home / "run.lock"
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HomeInUseError(
                f"Another `crossdock run` or `pipeline` (process {_owner(file)}) is working in {home}. "
                "It picks up new files by itself, and a change that is deployed with: crossdock apply APP. "
                "For another MessageBox, use another --home."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _owner(file: IO[str]) -> str:
    file.seek(0)
    return file.read() or "unknown"
