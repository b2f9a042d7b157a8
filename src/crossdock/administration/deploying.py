"""Deploying as an act of its own: apply an application, with or without a plan that was looked at, or take it away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec

from crossdock.administration.audit import refusals_recorded
from crossdock.administration.names import remember_names
from crossdock.administration.plan import Plan, compared
from crossdock.application.load import load_application
from crossdock.application.store import existing, opened
from crossdock.errors import OutdatedPlanError, UnavailableError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.undeployment import Leaving, Undeployed
from crossdock.settings import Settings
from crossdock.subscription.router import Epoch
from crossdock.whole_file import DECLARED_LIMIT_BYTES, read_whole

__all__ = [
    "Applied",
    "Leaving",
    "Undeployed",
    "apply",
    "deploy",
    "name_of",
    "read_plan",
    "undeploy",
    "write_plan",
    "yaml_of",
]


@dataclass(frozen=True, slots=True)
class Applied:
    """What a deployment changed, in the words of its plan; `warnings` are sentences about what does not work."""

    application: str
    changed: bool
    summary: str
    warnings: Sequence[str] = ()


class PlanMark(msgspec.Struct, frozen=True):
    """What of a plan file says whether it still holds: the deployment it was made of, and the epoch."""

    application: str
    digest: str
    epoch: int
    epoch_token: UUID


def write_plan(plan: Plan, file: Path) -> None:
    """The whole plan as JSON. It holds no secrets."""
    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"The plan cannot be written to {file}: {error.strerror}") from error


def read_plan(file: Path) -> PlanMark:
    try:
        return msgspec.json.decode(read_whole(file, DECLARED_LIMIT_BYTES), type=PlanMark)
    except msgspec.DecodeError as error:
        raise UsageError(f"{file} is no plan of `crossdock plan APP --out FILE`: {error}") from error


def yaml_of(file: Path) -> str:
    """The text of an application file for a console, which takes YAML only. UsageError for any other."""
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"A console takes YAML, not {file}. Deploy it where its code is: leave --url out.")
    try:
        return read_whole(file, DECLARED_LIMIT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8: {error.reason} at byte {error.start}.") from error


def apply(deployment: Deployment, settings: Settings, *, plan: PlanMark | None = None) -> Applied:
    """Deploy, and create the MessageBox where there is none. Processes that run pick it up by themselves.

    OutdatedPlanError: the MessageBox or the application is not what the plan was made of.
    """
    if plan is not None and plan.digest != deployment.digest:
        raise OutdatedPlanError(
            f"The plan was made of another application {plan.application!r} than this file declares now. "
            "Make it again with: crossdock plan APP --out FILE"
        )
    with opened(settings, any_version=True) as agent:
        return deploy(
            agent, deployment, settings, planned_at=None if plan is None else Epoch(plan.epoch, plan.epoch_token)
        )


def deploy(agent: Agent, deployment: Deployment, settings: Settings, *, planned_at: Epoch | None = None) -> Applied:
    """The same where the MessageBox is open already."""
    with refusals_recorded(agent, "deploy", [deployment.application]):
        agent.access.require_owner("deploy")
    agent.box.create()
    summary = compared(deployment, agent.configuration.deployed(deployment), []).summary
    with refusals_recorded(agent, "deploy", [deployment.application]):
        changed = agent.subscriptions.deploy(deployment, planned_at=planned_at)
    remember_names(agent, settings)
    return Applied(deployment.application, changed, summary, _create_roles(agent, settings))


def _create_roles(agent: Agent, settings: Settings) -> list[str]:
    """On a server, a database role for each host; where we may not make roles, everything else works without."""
    if settings.database:
        try:
            agent.box.create_host_roles()
        except UnavailableError as error:
            return [str(error)]
    return []


def undeploy(application: str, settings: Settings, leaving: Leaving = "refuse") -> Undeployed:
    """Take an application away, by its name or by its file. Processes that run follow by themselves.

    UsageError: it is not deployed, or something is left that somebody has to decide about first.
    """
    name = name_of(application)
    with opened(existing(settings)) as agent:
        with refusals_recorded(agent, "undeploy", [name]):
            agent.access.require_owner("undeploy")
            undeployed = agent.subscriptions.undeploy(name, leaving)
        remember_names(agent, settings)
        return undeployed


def name_of(application: str) -> str:
    """The name of an application that is given by its name or by its file."""
    file = Path(application)
    return (
        load_application(file).application
        if file.suffix in (".yaml", ".yml", ".py") and file.is_file()
        else application
    )
