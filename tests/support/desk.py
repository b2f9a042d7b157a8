"""An application with ports of every kind, in the kit of an author: orchestrations are deployed from source."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from crossdock.testing.orchestrations import TemporaryMessageBox
from running import IMPORTS

APPLICATION = """
application: desk
properties: {OrderId: text, Ticket: text, Amount: integer}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id, Amount: $.amount}}
  - {type: Cancellation, format: json, promote: {OrderId: $.id}}
  - {type: Task, format: json, promote: {Ticket: $.ticket}}
  - {type: Done, format: json, promote: {Ticket: $.ticket}}
  - {type: Note, format: json, promote: {OrderId: $.id}}
receive_ports:
  - {name: Ask, two_way: true, locations: [{adapter: http, address: ":8080/ask", pipeline: json, schema: Order}]}
  - {name: Tell, two_way: true, locations: [{adapter: http, address: ":8080/tell", pipeline: json, schema: Order}]}
send_ports:
  - {name: Out, adapter: file, address: "out/%MessageID%"}
  - {name: North, adapter: file, address: "north/%MessageID%"}
  - {name: South, adapter: file, address: "south/%MessageID%"}
  - {name: Notes, adapter: file, address: "notes/%MessageID%", filter: "MessageType = 'Note'"}
  - {name: Anywhere, dynamic: true, allow: ["out/"]}
  - {name: Shop, adapter: http, address: "http://localhost:1/", response: {pipeline: json, schema: Note}}
send_port_groups: [{name: Everyone, ports: [North, South]}]
orchestrations:
"""


class Desk:
    """Deploys orchestrations from source; `bind` and what else they have, as YAML."""

    def __init__(self, box: TemporaryMessageBox, folder: Path) -> None:
        self.box = box
        self._folder = folder

    def deploy(self, source: str, **orchestrations: str) -> TemporaryMessageBox:
        (self._folder / "flows.py").write_text(IMPORTS + dedent(source))
        declared = [f'  - {{function: "flows:{name}", {more}}}\n' for name, more in orchestrations.items()]
        (self._folder / "desk.yaml").write_text(APPLICATION + "".join(declared))
        self.box.deploy(self._folder / "desk.yaml")
        return self.box


@pytest.fixture
def desk(messagebox: TemporaryMessageBox, folder: Path) -> Desk:
    return Desk(messagebox, folder)
