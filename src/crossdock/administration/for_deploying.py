"""The part of the service that deploys an application which came over the network: as YAML, and without any code.

Relative addresses are those of the folder in which this process was started. All of it takes an administrator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from crossdock.administration.deploying import Applied, deploy
from crossdock.administration.names import remember_names
from crossdock.administration.plan import Plan, plan_with
from crossdock.administration.try_filter import TriedFilter, try_filter
from crossdock.application.deploy import deployment_of
from crossdock.application.load import read_yaml
from crossdock.application.model import ApplicationModel
from crossdock.errors import ApplicationError, OutdatedPlanError, UsageError
from crossdock.messagebox.access import Right
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import Deployment
from crossdock.messagebox.undeployment import Leaving, Undeployed
from crossdock.settings import Settings
from crossdock.subscription.router import Epoch

__all__ = ["Applied", "Epoch", "ForDeploying", "Plan", "TriedFilter", "Undeployed"]

_NAMED = "application.yaml"  # what problems are said to be in
_WHERE_ITS_CODE_IS = (
    "To change anything of it, also a filter, deploy it on a machine that has its code and reaches the database, "
    "without --url: crossdock apply APP --database URL"
)
_MAY_NAME_CODE = frozenset({"adapter", "disassemble", "assemble", "components", "decode", "encode", "function"})


class ForDeploying:
    """What `Administration` offers for deploying."""

    _agent: Agent
    _settings: Settings | None

    def epoch(self) -> Epoch:
        """Moves with every change of subscriptions or configuration."""
        return self._agent.epoch()

    def plan(self, text: str) -> Plan:
        """What the application in this YAML would change. Nothing is changed."""
        with self._act("plan", ["application"], "administrator"):
            return plan_with(self._agent, self._deployment(text))

    def apply(self, text: str, *, planned_at: Epoch | None = None, digest: str | None = None) -> Applied:
        """Deploy it. OutdatedPlanError if the epoch, or the digest of the application, is not that of its plan."""
        with self._act("deploy", ["application"], "administrator"):
            deployment = self._deployment(text)
            if digest is not None and digest != deployment.digest:
                raise OutdatedPlanError("The plan was made of another application than this one. Make the plan again.")
            return deploy(self._agent, deployment, self._given(), planned_at=planned_at)

    def undeploy(self, application: str, leaving: Leaving = "refuse") -> Undeployed:
        """Take an application away. UsageError if something is left that somebody has to decide about first."""
        with self._act("undeploy", [application], "administrator"):
            undeployed = self._agent.subscriptions.undeploy(application, leaving)
            remember_names(self._agent, self._given())
            return undeployed

    def try_filter(
        self, text: str, *, port: str | None = None, since: str | None = None, limit: int = 1_000
    ) -> TriedFilter:
        """What a filter would gain and lose, tried on recent tracked messages."""
        return try_filter(self._agent, text, port=port, since=since, limit=limit)

    def _deployment(self, text: str) -> Deployment:
        file = Path.cwd() / _NAMED
        application = read_yaml(text.encode("utf-8", "surrogatepass"), file)
        _refuse_code(application)
        return deployment_of(application, file, text_limit=self._given().text_limit)

    def _given(self) -> Settings:
        if self._settings is None:
            raise UsageError("This process cannot deploy: it was not told where it works.")
        return self._settings

    def _act(self, action: str, targets: Sequence[str], needs: Right = "operator") -> AbstractContextManager[None]:
        raise NotImplementedError


def _refuse_code(application: ApplicationModel) -> None:
    """Whoever may deploy here must not be able to run code of its own on our machines."""
    if application.orchestrations:
        raise ApplicationError(
            f"Application {application.application!r} has orchestrations, whose code does not come with its YAML. "
            + _WHERE_ITS_CODE_IS
        )
    for name in _code_of(application.model_dump(by_alias=True)):
        raise ApplicationError(
            f"Application {application.application!r} names code of its own, {name!r}, which does not come with its "
            f"YAML. {_WHERE_ITS_CODE_IS}"
        )


def _code_of(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _code_of(each, str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _code_of(each, key)
    elif isinstance(value, str) and key in _MAY_NAME_CODE and ":" in value:
        yield value
