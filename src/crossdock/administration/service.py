"""Questions and actions of an operator on a MessageBox that already exists: one service behind every face."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

from crossdock.administration.audit import refusals_recorded, since_of
from crossdock.administration.deliveries import Chosen, Outcome, Saved, chosen, resume, save, terminate
from crossdock.administration.edit import Editable, Edited, edit, editable
from crossdock.administration.erase import Erased, erase_messages
from crossdock.administration.explain import ExplainedMessage, explain_message
from crossdock.administration.for_deploying import ForDeploying
from crossdock.administration.for_pages import ForPages
from crossdock.administration.histories import save_histories
from crossdock.administration.instances import (
    DescribedInstance,
    Instance,
    InstanceResult,
    cancel_instances,
    describe_instance,
    list_instances,
    resume_instances,
    terminate_instances,
)
from crossdock.administration.message_ids import is_instance_id, read_message_id
from crossdock.administration.messages import DescribedMessage, MessagePage, describe_message, list_messages
from crossdock.administration.publish import PublishedMessage, given_properties, publish_content, publish_files
from crossdock.administration.samples import Sample, read_sample
from crossdock.administration.suspended import (
    Selection,
    SuspendedGroup,
    SuspendedRow,
    list_groups,
    list_suspended,
    told,
)
from crossdock.administration.tokens import Tokens
from crossdock.administration.trace import Traced, trace_message
from crossdock.application.store import existing
from crossdock.application.store import opened as opened_store
from crossdock.errors import UsageError
from crossdock.messagebox.access import GivenRight, Right, Rights
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.audit import Act, AuditRow
from crossdock.messagebox.database import Actor
from crossdock.messagebox.overview import (
    GroupOverview,
    HostOverview,
    LocationOverview,
    OrchestrationOverview,
    PortOverview,
    SubscriptionOverview,
    WaitingOverview,
)
from crossdock.messagebox.subscriptions import Transition
from crossdock.messagebox.undeployment import DeployedApplication
from crossdock.messagebox.whole_application import ArtefactTransition, StateVerb
from crossdock.settings import Settings

__all__ = [
    "Actor",
    "Administration",
    "ArtefactTransition",
    "AuditRow",
    "Chosen",
    "DeployedApplication",
    "DescribedInstance",
    "DescribedMessage",
    "Editable",
    "Edited",
    "ExplainedMessage",
    "GivenRight",
    "GroupOverview",
    "HostOverview",
    "Instance",
    "InstanceResult",
    "LocationOverview",
    "MessagePage",
    "OrchestrationOverview",
    "Outcome",
    "PortOverview",
    "Right",
    "Rights",
    "Selection",
    "StateVerb",
    "SubscriptionOverview",
    "SuspendedGroup",
    "SuspendedRow",
    "Traced",
    "Transition",
    "WaitingOverview",
    "opened",
]


@contextmanager
def opened(settings: Settings) -> Iterator[Administration]:
    """The service for one command. It creates no MessageBox: UsageError if there is none in the home."""
    with opened_store(existing(settings)) as agent:
        yield Administration(agent, text_limit=settings.text_limit, settings=settings)


class Administration(ForDeploying, ForPages):
    """The lists give typed rows. The verbs say what became of each thing they were asked about."""

    def __init__(self, agent: Agent, *, text_limit: int, settings: Settings | None = None) -> None:
        self._agent = agent
        self._text_limit = text_limit
        self._settings = settings

    # Lists

    def applications(self) -> Sequence[DeployedApplication]:
        return self._agent.configuration.list_applications()

    def ports(self, *, after: tuple[str, str] | None = None, limit: int | None = None) -> Sequence[PortOverview]:
        """All; or a page by application and name, `after` those of the last port."""
        return self._agent.configuration.list_ports(after=after, limit=limit)

    def groups(self) -> Sequence[GroupOverview]:
        return self._agent.configuration.list_groups()

    def locations(
        self, *, after: tuple[str, str] | None = None, limit: int | None = None
    ) -> Sequence[LocationOverview]:
        """Likewise."""
        return self._agent.configuration.list_locations(after=after, limit=limit)

    def subscriptions(
        self, *, after: tuple[str, int] | None = None, limit: int | None = None
    ) -> Sequence[SubscriptionOverview]:
        """All, with their filters; or a page `after` the kind and id of the last one."""
        filters = {each.subscription_id: str(each.filter) for each in self._agent.subscriptions.versions()}
        return [
            replace(each, filter=filters.get(each.id)) if each.kind == "activation" else each
            for each in self._agent.configuration.list_subscriptions(after=after, limit=limit)
        ]

    def hosts(self) -> Sequence[HostOverview]:
        return self._agent.configuration.list_hosts()

    def suspended(
        self, selection: Selection | None = None, *, limit: int | None = None, after: int = 0
    ) -> Sequence[SuspendedRow]:
        """The oldest first; the next page is `after` the sequence of the last row."""
        with self._searching("suspended messages", personal=selection is not None and selection.personal):
            return list_suspended(self._agent, selection, limit=limit, after=after)

    def suspended_groups(self, by: str) -> Sequence[SuspendedGroup]:
        """How many are suspended by code, port or type, the most first."""
        return list_groups(self._agent, by)

    def waiting(self, *, port: str | None = None, limit: int = 100) -> Sequence[WaitingOverview]:
        """What waits for its next attempt: why, which attempt, and when it is due."""
        return self._agent.configuration.list_waiting(port=port, limit=limit)

    def orchestrations(self) -> Sequence[OrchestrationOverview]:
        return self._agent.configuration.list_orchestrations()

    def instances(
        self, *, state: str | None = None, where: str | None = None, personal: bool = False
    ) -> Sequence[Instance]:
        """Instances of orchestrations, in this state, whose activating message fits the filter `where`."""
        with self._searching("instances", personal=personal):
            return list_instances(self._agent, state=state, where=where, personal=personal)

    def audit(
        self,
        *,
        since: str | None = None,
        person: str | None = None,
        action: str | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> Sequence[AuditRow]:
        """Who did what, the newest first; `before` the number of a row that was listed."""
        ago = None if since is None else since_of(since)
        return self._agent.audit.list(since=ago, person=person, action=action, limit=limit, before=before)

    def describe(self, id_: str) -> DescribedInstance | DescribedMessage:
        """One message, or one instance of an orchestration, in full."""
        if is_instance_id(id_):
            return describe_instance(self._agent, id_)
        return describe_message(self._agent, read_message_id(self._agent, id_))

    def now(self) -> datetime:
        """The time by the clock of PostgreSQL."""
        return self._agent.configuration.clock()

    def sample(self) -> Sample:
        """How the MessageBox was a few seconds ago. Costs the same however much is in it."""
        return read_sample(self._agent)

    # Send ports, groups, orchestrations and receive locations

    def start(self, name: str) -> Transition:
        """Start a send port, a group or an orchestration, and resume what was suspended because it was stopped."""
        with self._act("start", [name]):
            return self._agent.subscriptions.start(name)

    def stop(self, name: str) -> Transition:
        """What matches from now on is suspended. Running instances of an orchestration go on."""
        with self._act("stop", [name]):
            return self._agent.subscriptions.stop(name)

    def enlist(self, name: str) -> Transition:
        """Give a port, a group or an orchestration its subscriptions, stopped."""
        with self._act("enlist", [name]):
            return self._agent.subscriptions.enlist(name)

    def unenlist(self, name: str) -> Transition:
        """Take the subscriptions away. Running instances of an orchestration go on."""
        with self._act("unenlist", [name]):
            return self._agent.subscriptions.unenlist(name)

    def enable(self, location: str) -> bool:
        """Let a receive location receive; False if it did already."""
        with self._act("enable", [location]):
            return self._agent.subscriptions.enable(location, enabled=True)

    def disable(self, location: str) -> bool:
        """Let a receive location rest; False if it did already."""
        with self._act("disable", [location]):
            return self._agent.subscriptions.enable(location, enabled=False)

    def change_application(self, verb: StateVerb, application: str) -> Sequence[ArtefactTransition]:
        """Start, stop, enlist or unenlist all ports, groups and orchestrations of an application, or none."""
        with self._act(verb, [application]):
            return self._agent.subscriptions.change_application(verb, application)

    def enable_application(self, application: str, *, enabled: bool) -> Sequence[ArtefactTransition]:
        """Let all receive locations of an application receive, or rest."""
        with self._act("enable" if enabled else "disable", [application]):
            return self._agent.subscriptions.enable_application(application, enabled=enabled)

    def means_application(self, name: str, *, receiving: bool) -> bool:
        """Whether a name means an application: only if nothing else that can be changed has it, or can be enabled."""
        subscribes, receives, is_application = self._agent.subscriptions.kinds(name)
        return is_application and not (receives if receiving else subscribes)

    # Messages

    def messages(self, **asked: Any) -> MessagePage:
        """Messages that are tracked, the newest first: see `list_messages` for what can be asked."""
        with self._searching("messages", personal=bool(asked.get("personal"))):
            return list_messages(self._agent, **asked)

    def explain(
        self, id_: str, *, subscription: str | None = None, now: bool = False, most: int | None = None
    ) -> ExplainedMessage:
        """Who got a message and who did not, by the filters of its day or of `now`, and why: see `explain_message`."""
        id_of = read_message_id(self._agent, id_)
        return explain_message(self._agent, id_of, subscription=subscription, now=now, most=most)

    def erase(self, where: str, *, preview: bool = True) -> Erased:
        """Erase what is tracked of the content of messages; a `preview` only counts them."""
        with self._act("erase", ["messages"], "administrator"):
            return erase_messages(self._agent, where, preview=preview)

    def trace(self, id_: str) -> Traced:
        """The journey of a message from here on, with the messages that came of it."""
        return trace_message(self._agent, read_message_id(self._agent, id_))

    def publish(
        self, files: Sequence[Path], *, location: str | None, to: str | None, properties: Sequence[str]
    ) -> Iterator[PublishedMessage]:
        """Publish files at once, with properties as `NAME=VALUE`; what became of each message once it is committed."""
        with self._act("publish", [str(file) for file in files], "administrator"):
            promoted = given_properties(self._agent, properties, to, text_limit=self._text_limit)
            yield from publish_files(self._agent, files, location=location, properties=promoted)

    def publish_content(
        self, name: str, content: bytes, *, location: str | None, to: str | None, properties: Sequence[str]
    ) -> Sequence[PublishedMessage]:
        """The same for bytes, under a name that messages have as that of their file."""
        with self._act("publish", [name], "administrator"):
            promoted = given_properties(self._agent, properties, to, text_limit=self._text_limit)
            return list(publish_content(self._agent, name, content, location=location, properties=promoted))

    def choose(self, action: str, selection: Selection) -> Chosen:
        """What a selection means, as it is now: to be shown to the person, and then to be acted on."""
        (messages, instances), said = _told_apart(selection.ids), told(self._agent, selection)
        with self._act(action, selection.ids or [str(said)], "bodies" if action == "save" else "operator"):
            found = () if selection.ids and not messages else chosen(self._agent, replace(selection, ids=messages))
            return Chosen(said, found, instances)

    def resume(self, what: Chosen, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]:
        """Take suspended deliveries, or suspended instances of orchestrations, up again where they stopped.

        What became of each comes as soon as its batch is committed. At most `rate` in a second; no further batch is
        begun once `stop` is set.
        """
        self._record_many("resume", what)
        with self._act("resume", what.selection.ids):
            yield from resume(self._agent, what.deliveries, rate=rate, stop=stop)
            for each in resume_instances(self._agent, what.instances) if what.instances else ():
                yield Outcome(each.id, "instance", each.orchestration, each.result, each.result == "resumed")

    def terminate(self, what: Chosen, *, rate: float | None = None, stop: Event | None = None) -> Iterator[Outcome]:
        """End suspended deliveries, or instances of orchestrations, for good; no code of an instance is run."""
        self._record_many("terminate", what)
        with self._act("terminate", what.selection.ids, "administrator" if what.instances else "operator"):
            yield from terminate(self._agent, what.deliveries, rate=rate, stop=stop)
            for each in terminate_instances(self._agent, what.instances) if what.instances else ():
                yield Outcome(each.id, "instance", each.orchestration, each.result, each.result == "terminated")

    def editable(self, id_: str, port: str | None) -> Editable:
        """The suspended delivery that is to be edited, with its message; that it was read is recorded."""
        with self._act("edit", [id_], "edit"):
            return editable(self._agent, id_, port)

    def edit(self, what: Editable, *, body: bytes | None, properties: Sequence[str]) -> Edited:
        """Change a suspended message for exactly one subscriber, and deliver it there."""
        with self._act("edit", [str(what.row.id)], "edit"):
            return edit(self._agent, what, body=body, properties=properties, text_limit=self._text_limit)

    def terminate_instances(self, ids: Sequence[str]) -> Sequence[InstanceResult]:
        """End instances of orchestrations for good; no code of theirs is run."""
        with self._act("terminate", ids, "administrator"):
            _refuse_messages(ids)
            return terminate_instances(self._agent, ids)

    def require_operator(self) -> None:
        """NotAllowedError for somebody who may act on nothing."""
        self._require("act", "operator")

    def _record_many(self, action: str, what: Chosen) -> None:
        """What was asked for: each delivery is recorded besides, when it happens."""
        if not what.selection.is_by_id:
            begun = Act(action, str(what.selection), after={"deliveries": len(what.deliveries)}, outcome="begun")
            self._agent.audit.record([begun])

    def cancel(self, ids: Sequence[str]) -> Sequence[InstanceResult]:
        """Let instances of orchestrations undo what they have done, and end."""
        with self._act("cancel", ids):
            _refuse_messages(ids)
            return cancel_instances(self._agent, ids)

    def save(self, ids: Sequence[str], folder: Path) -> list[Saved]:
        """Write the original bytes of messages, and the histories of instances, to files named by their id."""
        messages, instances = _told_apart(ids)
        with self._act("save", ids, "bodies"):
            return [*save(self._agent, messages, folder), *save_histories(self._agent, instances, folder)]

    # Who may do what

    def rights(self) -> Rights:
        """What whoever asks may do: as the database user, and within its own limit if it has one."""
        return self._agent.access.rights()

    def acting_for(self, actor: Actor) -> Administration:
        """The same service for another person, who may be limited to fewer rights. It uses the same connections."""
        return Administration(self._agent.acting_for(actor), text_limit=self._text_limit, settings=self._settings)

    def access(self) -> Sequence[GivenRight]:
        """Which database users were given which rights."""
        return self._agent.access.list()

    def grant(self, what: str, user: str, application: str | None = None) -> None:
        """Give a database user a right, for all applications or for one."""
        with self._act("grant", [user], "administrator"):
            self._agent.access.grant(what, user, application)

    def revoke(self, what: str, user: str, application: str | None = None) -> None:
        """Take a right away."""
        with self._act("revoke", [user], "administrator"):
            self._agent.access.revoke(what, user, application)

    @property
    def tokens(self) -> Tokens:
        """The tokens by which programs and people sign in at the console."""
        return Tokens(self._agent, self._act)

    @contextmanager
    def _act(self, action: str, targets: Sequence[str], needs: Right = "operator") -> Iterator[None]:
        """An act that takes a right; if it is refused, that is recorded. Publishing is for the roles of hosts too."""
        with refusals_recorded(self._agent, action, targets):
            if action != "publish" or self._agent.access.is_limited or not self._agent.box.own_hosts():
                self._require(action, needs)
            yield

    def _require(self, action: str, needs: Right) -> None:
        rights = self._agent.access.rights()
        if not rights.any(needs):
            raise rights.refusal(action, needs)


def _told_apart(ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ids of messages, or what is none, and ids of instances."""
    return [id_ for id_ in ids if not is_instance_id(id_)], [id_ for id_ in ids if is_instance_id(id_)]


def _refuse_messages(ids: Sequence[str]) -> None:
    others, _ = _told_apart(ids)
    if others:
        raise UsageError(f"{others[0]!r} is not the id of an instance. List them with: crossdock get instances")
