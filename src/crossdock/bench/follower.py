"""An orchestration that waits beside a benchmark: messages may or may not have a type that follows its correlation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.messagebox.agent import Agent

# none: nothing is deployed. foreign: no message of the benchmark may follow. following: every message may.
Correlations = Literal["none", "foreign", "following"]

_FLOW = """
from crossdock import Correlation, Message, Process, Receive, orchestration

case = Correlation("{property_}", types=["{type_}"])

@orchestration(Receive("Bench.Begin", initializes=case))
async def follow(process: Process, begin: Message) -> None:
    await process.receive(case)
"""
_APPLICATION = """
application: follower
hosts: [{{name: {host}}}]
properties: {{{property_}: {kind}}}
schemas:
  - {{type: Bench.Begin, format: json, promote: {{{property_}: $.value}}}}
  - {{type: "{type_}", format: json, promote: {{{property_}: $.value}}}}
orchestrations: [{{function: "follower:follow", host: {host}}}]
"""


def deploy_follower(
    agent: Agent, folder: Path, correlation: Correlations, *, host: str, message_type: str, property_: tuple[str, str]
) -> None:
    """Deploy the orchestration. No message begins an instance, so that nobody waits: only looking is measured.

    `property_` is the name and the type of one that every message of the benchmark promotes.
    """
    if correlation == "none":
        return
    name, kind = property_
    type_ = message_type if correlation == "following" else "Bench.Foreign"
    (folder / "follower.py").write_text(_FLOW.format(property_=name, type_=type_))
    path = folder / "follower.yaml"
    path.write_text(_APPLICATION.format(host=host, property_=name, kind=kind, type_=type_))
    agent.subscriptions.deploy(deployment_of(load_application(path), path, text_limit=256))
