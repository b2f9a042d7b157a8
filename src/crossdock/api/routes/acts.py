"""Acts on ports, groups, orchestrations, receive locations and instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path

from crossdock.administration.instances import InstanceResult
from crossdock.administration.operating import ApplicationVerb, Enabled
from crossdock.administration.service import ArtefactTransition, Selection, Transition
from crossdock.api.answers import AnsweredOnce
from crossdock.api.gate import Service
from crossdock.api.problems import ProblemError

routes = APIRouter(tags=["acts"], route_class=AnsweredOnce)

# A name may have a slash in it.
PortName = Annotated[str, Path(description="A send port, a group or an orchestration.")]
InstanceId = Annotated[str, Path(max_length=100, description="The id of an instance of an orchestration.")]


@routes.post("/ports/{name:path}/start", operation_id="start")
def start(service: Service, name: PortName) -> Transition:
    """Start a send port, a group or an orchestration, and resume what was suspended because it was stopped."""
    return service.start(name)


@routes.post("/ports/{name:path}/stop", operation_id="stop")
def stop(service: Service, name: PortName) -> Transition:
    """Stop it: what matches from now on is suspended. Running instances of an orchestration go on."""
    return service.stop(name)


@routes.post("/ports/{name:path}/enlist", operation_id="enlist")
def enlist(service: Service, name: PortName) -> Transition:
    """Give it its subscriptions, stopped."""
    return service.enlist(name)


@routes.post("/ports/{name:path}/unenlist", operation_id="unenlist")
def unenlist(service: Service, name: PortName) -> Transition:
    """Take its subscriptions away: nothing matches it any more."""
    return service.unenlist(name)


@routes.post("/locations/{name:path}/enable", operation_id="enable")
def enable(service: Service, name: str) -> Enabled:
    """Let a receive location receive."""
    return Enabled(name, enabled=True, changed=service.enable(name))


@routes.post("/locations/{name:path}/disable", operation_id="disable")
def disable(service: Service, name: str) -> Enabled:
    """Let a receive location rest; what has arrived there waits."""
    return Enabled(name, enabled=False, changed=service.disable(name))


@routes.post("/applications/{name:path}/{verb}", operation_id="change_application")
def change_application(service: Service, name: str, verb: ApplicationVerb) -> Sequence[ArtefactTransition]:
    """Start, stop, enlist or unenlist all that an application has; or enable or disable its receive locations."""
    if verb == "enable" or verb == "disable":
        return service.enable_application(name, enabled=verb == "enable")
    return service.change_application(verb, name)


@routes.post("/instances/{id}:resume", operation_id="resume_instance")
def resume_instance(service: Service, id: InstanceId) -> InstanceResult:  # noqa: A002 - the name in the path
    """Let a suspended instance go on; what failed is tried again."""
    chosen = service.choose("resume", Selection([id]))
    return _of_instance(id, [InstanceResult(each.id, each.port or "", each.result) for each in service.resume(chosen)])


@routes.post("/instances/{id}:cancel", operation_id="cancel_instance")
def cancel_instance(service: Service, id: InstanceId) -> InstanceResult:  # noqa: A002 - the name in the path
    """Let an instance undo what it has done, and end."""
    return _of_instance(id, service.cancel([id]))


@routes.post("/instances/{id}:terminate", operation_id="terminate_instance")
def terminate_instance(service: Service, id: InstanceId) -> InstanceResult:  # noqa: A002 - the name in the path
    """End an instance for good; none of its code is run. Takes an administrator."""
    return _of_instance(id, service.terminate_instances([id]))


def _of_instance(id_: str, results: Sequence[InstanceResult]) -> InstanceResult:
    if not results:
        raise ProblemError(404, "not-found", f"There is no instance {id_}.")
    return results[0]
