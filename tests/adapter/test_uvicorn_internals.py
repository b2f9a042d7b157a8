"""What we use of uvicorn beside its main road: which names, and why. Another version may have none of them.

So the range of versions is narrow. To widen it: read what changed in these, then run `tests/adapter/test_http_*.py`.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from crossdock.adapter.http import connection, server

INTERNALS: dict[type, dict[str, str]] = {
    H11Protocol: {
        "conn": "replaced, to give others their turn and to refuse requests whose end is ambiguous",
        "flow": "replaced, to read nothing while others have their turn",
        "cycle": "whether a request is being answered, and to end it",
        "transport": "to hang up, to write refusals, to ask the kernel whether the client is there",
        "loop": "for deadlines",
        "client": "for the log",
        "logger": "replaced: its warnings are about clients, which anybody can be",
        "access_log": "off: paths and queries may hold secrets",
        "timeout_keep_alive": "the time between two requests, of ours",
        "connection_made": "the deadline of the first head begins",
        "data_received": "deadlines, and no more than a share of the event loop",
        "handle_events": "to go on after others had their turn",
        "eof_received": "who says nothing more is not answered",
        "connection_lost": "nothing is awaited any more",
        "shutdown": "called where the server stops, as uvicorn's own server does",
        "send_400_response": "called for what is not HTTP: the answer says why",
        "_unset_keepalive_if_required": "cancelled with the connection, also after an error",
        "_unsupported_upgrade_warning": "silenced: HTTP/2 and WebSocket may be offered",
    },
    RequestResponseCycle: {
        "response_complete": "whether a request is being answered",
        "disconnected": "set, so that nothing is written any more",
        "waiting_for_100_continue": "taken back where the request is refused before the body was asked for",
        "keep_alive": "set, so that the connection ends with the answer",
        "message_event": "set, so that whoever waits for the body hears of the end",
    },
    FlowControl: {
        "drain": "to know that an answer has gone out",
        "pause_reading": "while others have their turn",
        "resume_reading": "afterwards",
    },
    ServerState: {
        "connections": "to count them, and to end them",
        "tasks": "the requests in progress: waited for, then cancelled",
    },
    Config: {
        "load": "makes the application callable",
        "h11_max_incomplete_event_size": "the limit of a head",
    },
}
OWNERS = {"cycle": RequestResponseCycle, "flow": FlowControl, "_state": ServerState}


def names_of(owner: type) -> set[str]:
    """Its attributes and methods, as its source has them."""
    return set(re.findall(r"(?:self\.|def )(\w+)", inspect.getsource(owner)))


def used() -> set[tuple[type, str]]:
    """What our two modules override or reach for."""
    found: set[tuple[type, str]] = set()
    for module in (connection, server):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in names_of(H11Protocol):
                    found.add((H11Protocol, name))
                case ast.Attribute(value=ast.Attribute(attr=part), attr=name) if part in OWNERS:
                    found.add((OWNERS[part], name))
                case ast.ClassDef(name="Connection"):
                    own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                    found |= {(H11Protocol, name) for name in own & names_of(H11Protocol) - {"__init__"}}
    return found


def test_every_internal_that_we_use_is_named_here_with_the_reason() -> None:
    ours = {"is_resting"}  # of the flow that replaces uvicorn's

    named = {(owner, name) for owner, names in INTERNALS.items() for name in names}

    assert {(owner, name) for owner, name in used() - named if name not in ours} == set()


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in INTERNALS.items() for name in names])
def test_internal_is_there(owner: type, name: str) -> None:
    assert name in names_of(owner)


def test_version_is_of_the_narrow_range_that_is_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    [declared] = [each for each in project["dependencies"] if each.startswith("uvicorn")]
    major, minor, *_ = map(int, version("uvicorn").split("."))

    assert declared == f"uvicorn>={major}.{minor},<{major}.{minor + 1}"
