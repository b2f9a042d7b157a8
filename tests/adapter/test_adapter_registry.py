"""Adapters by name: what is built, and how wrong names and options are refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from crossdock.adapter.file.adapter import FileReceiveAdapter
from crossdock.adapter.registry import printable_address, receive_adapter
from crossdock.adapter.sql.receive import SqlReceiveAdapter
from crossdock.errors import ApplicationError
from crossdock.host.outcome import Suspend
from crossdock.message.context import Context
from crossdock.message.message import Message, MessageId, Part
from crossdock.send.port import SendPort

SQL = {"query": "SELECT 1 AS id", "key": "id", "done": "SELECT :key"}


def test_options_reach_the_adapter(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "a.json").write_bytes(b"12345")
    (folder / "b.json").write_bytes(b"1")
    (folder / "c.json").write_bytes(b"1234567")
    options = {
        "subfolders": True,
        "minimum_age": 0,
        "minimum_size": 2,
        "maximum_size": 5,
        "archive": str(folder / "old"),
    }

    adapter = receive_adapter("file", str(folder / "*.json"), options)
    assert isinstance(adapter, FileReceiveAdapter)
    [source] = adapter.list().ready
    adapter.acknowledge(source.identity)

    assert (folder / "old" / "deep" / "a.json").read_bytes() == b"12345"


def test_options_that_are_not_given_keep_the_default_of_the_adapter(folder: Path) -> None:
    (folder / "young.json").write_bytes(b"{")

    adapter = receive_adapter("file", str(folder / "*.json"), {})

    assert isinstance(adapter, FileReceiveAdapter)
    assert adapter.list().incomplete == 1


def test_sql_rows_are_listed_up_to_the_default_limit(folder: Path) -> None:
    (folder / "shop.db").touch()
    many = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 10001) SELECT id FROM n"

    adapter = receive_adapter("sql", f"sqlite:///{folder}/shop.db", {**SQL, "query": many})

    assert isinstance(adapter, SqlReceiveAdapter)
    assert len(adapter.list().ready) == 10_000


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        ("fil", {}, "there is no adapter 'fil'; did you mean 'file'?"),
        (
            "carrier pigeon",
            {},
            "there is no adapter 'carrier pigeon'; there are file, http, sql, or a class of your own",
        ),
        ("file", {"subfolder": True}, "adapter 'file' has no option 'subfolder'; did you mean 'subfolders'?"),
        ("file", {"zzz": 1}, "there are archive, marker, maximum_size, minimum_age, minimum_size, subfolders"),
        ("file", {"clock": None}, "adapter 'file' has no option 'clock'"),
        ("file", {"subfolders": "yes"}, "option 'subfolders' of adapter 'file': input should be a valid boolean"),
        ("file", {"minimum_size": -1}, "option 'minimum_size' of adapter 'file': input should be greater than"),
        ("file", {"minimum_size": 9, "maximum_size": 8}, "no file is at least 9 and at most 8 bytes"),
        ("file", {"archive": "in"}, "archive in holds the folder that is read, in; name another folder"),
        ("sql", {"query": "SELECT 1"}, "adapter 'sql' needs the option 'key'"),
        ("sql", {**SQL, "limit": 0}, "option 'limit' of adapter 'sql'"),
    ],
)
def test_wrong_declaration_is_refused_in_one_sentence(kind: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ApplicationError) as raised:
        receive_adapter(kind, "in/*.json", options)

    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_address_is_shown_without_its_password() -> None:
    assert printable_address("file", "in/*.json") == "in/*.json"
    assert printable_address("sql", "postgresql://me:secret@db:5433/shop?sslkey=x") == "postgresql://db:5433/shop"


@pytest.mark.parametrize("library", ["sqlalchemy", "httpx"])
def test_library_is_imported_only_when_it_is_needed(library: str) -> None:
    code = f"import sys, crossdock.adapter.registry; sys.exit({library!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OWN = """
class Notes:
    def __init__(self, address, *, timeout=10): self.address, self.timeout = address, timeout
    def list(self): ...
    def read(self, identity): ...
    def acknowledge(self, identity): ...
    def name(self, identity): ...

class Letters:
    def __init__(self, address): ...
    def send(self, message, *, attempt): ...
    def close(self): ...

class Picky(Notes):
    def __init__(self, address):
        from crossdock.errors import ApplicationError
        raise ApplicationError("the address is not one of ours")

class Broken(Notes):
    def __init__(self, address): raise ZeroDivisionError("oops")
"""


def test_adapter_of_ones_own_is_made_with_its_address_and_options(folder: Path) -> None:
    (folder / "mine.py").write_text(OWN)

    adapter = receive_adapter("mine:Notes", "notes://here", {"timeout": 5}, code=str(folder))

    assert (type(adapter).__name__, vars(adapter)) == ("Notes", {"address": "notes://here", "timeout": 5})


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        ("mine:Notes", {"colour": 1}, "adapter 'mine:Notes' cannot be made with its address and options: got an unexpected keyword argument 'colour'"),
        ("mine:Letters", {}, "adapter 'mine:Letters' has no method 'list'; it needs list, read, acknowledge, name"),
        ("mine:Picky", {}, "the address is not one of ours"),
        ("mine:Broken", {}, "adapter 'mine:Broken' cannot be made: ZeroDivisionError: oops"),
        ("mine:Other", {}, "module 'mine' has no class 'Other'"),
        ("nowhere:Notes", {}, "module 'nowhere' cannot be imported"),
        ("mine:", {}, "'mine:' does not name a class; write it as module:class"),
    ],
)  # fmt: skip
def test_adapter_of_ones_own_that_cannot_be_made_is_refused_in_one_sentence(
    folder: Path, kind: str, options: dict[str, Any], problem: str
) -> None:
    (folder / "mine.py").write_text(OWN)

    with pytest.raises(ApplicationError) as caught:
        receive_adapter(kind, "notes://here", options, code=str(folder))

    assert problem in str(caught.value)


def test_message_for_a_dynamic_port_names_no_code() -> None:
    context = Context(written={"BTS.OutboundTransportType": "subprocess:run", "BTS.OutboundTransportLocation": "true"})
    allow = [{"kind": "file", "address": "/out"}]
    port = SendPort.from_definition({"name": "Anywhere", "allow": allow}, lambda: MessageId(uuid4()))

    outcome = port.deliver(
        Message(MessageId(uuid4()), context, (Part("body", b""),)), attempt=0, now=lambda: datetime.now(UTC)
    )

    assert isinstance(outcome, Suspend)
    assert "there is no adapter 'subprocess:run'" in outcome.reason


def test_user_in_the_address_of_ones_own_adapter_is_not_shown() -> None:
    assert printable_address("mine:Notes", "notes://me:secret@host/a?b=c@d") == "notes://host/a?b=c@d"
    assert printable_address("mine:Notes", "some/place@home") == "some/place@home"
