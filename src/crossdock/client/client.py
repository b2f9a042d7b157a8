"""The client: a method for each operation of the API, with typed answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, Self

import httpx

from crossdock.administration.samples import Sample
from crossdock.client import calls
from crossdock.client.call import API, Call, Result, as_method, error_of, headers_of, sample_of, unreachable

Parameters = ParamSpec("Parameters")


def _sent(call: Callable[Parameters, Call[Result]]) -> Callable[Concatenate[Client, Parameters], Result]:
    """The method that sends this call."""

    def send(self: Client, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return self._send(call(*args, **kwargs))

    return as_method(send, call)


class Client:
    """Asks a console, at its `url`, with an API token. Use it in a `with`, or close it. Threads may share it.

    Every operation is a method. What the console refuses is the error that the service itself would raise.
    """

    def __init__(self, url: str, token: str, *, reason: str = "", timeout: float = 60) -> None:
        """`reason`: why, as the audit keeps it. `timeout` in seconds."""
        self._url = url
        self._http = httpx.Client(base_url=url, headers=headers_of(token, reason), timeout=timeout)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, call: Call[Result]) -> Result:
        try:
            return call.read(self._http.request(**call.asked()))
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from error

    def live(self) -> Iterator[Sample]:
        """A sample every few seconds, for as long as the caller wants. While the MessageBox is away there is none."""
        try:
            with self._http.stream("GET", f"{API}/live", timeout=None) as response:
                if response.status_code != 200:
                    response.read()
                    raise error_of(response)
                for line in response.iter_lines():
                    if (sample := sample_of(line)) is not None:
                        yield sample
        except httpx.HTTPError as error:
            raise unreachable(self._url, error) from error

    # Lists
    applications = _sent(calls.applications)
    ports = _sent(calls.ports)
    groups = _sent(calls.groups)
    locations = _sent(calls.locations)
    orchestrations = _sent(calls.orchestrations)
    subscriptions = _sent(calls.subscriptions)
    hosts = _sent(calls.hosts)
    waiting = _sent(calls.waiting)
    instances = _sent(calls.instances)
    instance = _sent(calls.instance)
    audit = _sent(calls.audit)
    sample = _sent(calls.sample)
    minutes = _sent(calls.minutes)

    # Messages
    messages = _sent(calls.messages)
    message = _sent(calls.message)
    explain = _sent(calls.explain)
    trace = _sent(calls.trace)
    part = _sent(calls.part)
    publish = _sent(calls.publish)
    erase = _sent(calls.erase)

    # What is suspended
    suspended = _sent(calls.suspended)
    suspended_groups = _sent(calls.suspended_groups)
    preview = _sent(calls.preview)
    execute = _sent(calls.execute)
    operations = _sent(calls.operations)
    operation = _sent(calls.operation)
    cancel_operation = _sent(calls.cancel_operation)
    edit = _sent(calls.edit)

    # Ports, locations and instances
    start = _sent(calls.start)
    stop = _sent(calls.stop)
    enlist = _sent(calls.enlist)
    unenlist = _sent(calls.unenlist)
    enable = _sent(calls.enable)
    disable = _sent(calls.disable)
    change_application = _sent(calls.change_application)
    resume_instance = _sent(calls.resume_instance)
    cancel_instance = _sent(calls.cancel_instance)
    terminate_instance = _sent(calls.terminate_instance)

    # Deploying
    plan = _sent(calls.plan)
    apply = _sent(calls.apply)
    undeploy = _sent(calls.undeploy)
    try_filter = _sent(calls.try_filter)

    # Who may do what
    me = _sent(calls.me)
    access = _sent(calls.access)
    grant = _sent(calls.grant)
    revoke = _sent(calls.revoke)
    tokens = _sent(calls.tokens)
    create_token = _sent(calls.create_token)
    revoke_token = _sent(calls.revoke_token)
    views = _sent(calls.views)
    save_view = _sent(calls.save_view)
    delete_view = _sent(calls.delete_view)
