"""Mistakes of authors of orchestrations: found before anything runs, all at once, each with its place; no false alarms."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent, indent

import pytest

from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.errors import ApplicationError

APPLICATION = """
application: shop
properties: {OrderId: text, Amount: decimal, Note: text}
schemas:
  - {type: Order, format: json, promote: {OrderId: $.id, Amount: $.amount}}
  - {type: Payment, format: json, promote: {OrderId: $.id}}
  - {type: Reminder, format: json}
send_ports:
  - {name: Mail, adapter: file, address: "out/mail/%MessageID%.json"}
orchestrations: [{function: "process:run", bind: {Customer: Mail}}]
"""
HEAD = """\
import asyncio, datetime, logging, os, random, secrets, socket, subprocess, time, uuid
from datetime import date, timedelta
from pathlib import Path
import datetime as dt
import httpx
from time import time as wall, sleep
from crossdock import Correlation, Message, P, Port, Process, Receive, orchestration

customer = Port("Customer")
case = Correlation("OrderId", types=["Payment"])
logger = logging.getLogger(); seeded = random.Random(7); started = dt.datetime.now(); dice = random.Random(); place = Path()
@orchestration(Receive("Order", P.Amount > 0, initializes=case))
async def run(process: Process, order: Message) -> None:
    await process.send(customer, process.message("Payment", order.json()))
"""
FIRST_LINE = HEAD.count("\n") + 1


def mistakes(
    folder: Path, body: str = "", *, head: str = HEAD, after: str = "", application: str = APPLICATION
) -> list[str]:
    """What is said of an orchestration whose coroutine goes on with `body`, without the names in front."""
    (folder / "process.py").write_text(head + indent(dedent(body), "    ") + "\n" + dedent(after))
    (folder / "shop.yaml").write_text(application)
    try:
        deployment_of(load_application(folder / "shop.yaml"), folder / "shop.yaml", text_limit=256)
    except ApplicationError as error:
        in_front = re.compile(rf"{re.escape(str(folder / 'shop.yaml'))}(, line \d+)?: (orchestration 'run': )?")
        return [in_front.sub("", line, count=1) for line in str(error).splitlines()]
    return []


def test_orchestration_without_mistakes_is_deployed(folder: Path) -> None:
    assert mistakes(folder) == []


@pytest.mark.parametrize(
    ("code", "written_as", "instead"),
    [
        ("datetime.datetime.now()", "datetime.datetime.now()", "process.now()"),
        ("dt.datetime.now(dt.UTC)", "datetime.datetime.now()", "process.now()"),
        ("date.today()", "datetime.date.today()", "process.now()"),
        ("time.time()", "time.time()", "process.now()"),
        ("wall()", "time.time()", "process.now()"),
        ("sleep(3)", "time.sleep()", "process.delay"),
        ("random.randint(1, 6)", "random.randint()", "process.random"),
        ("random.Random()", "random.Random()", "process.random"),
        ("secrets.token_hex()", "secrets.token_hex()", "process.random"),
        ("os.urandom(8)", "os.urandom()", "process.random"),
        ("uuid.uuid4()", "uuid.uuid4()", "process.uuid()"),
        ("uuid.uuid1()", "uuid.uuid1()", "process.uuid()"),
        ("await asyncio.sleep(1)", "asyncio.sleep()", "process.delay"),
        ("await asyncio.gather(process.delay(timedelta(1)))", "asyncio.gather()", "process.parallel"),
        ("open('file').read()", "open()", "process.atomic"),
        ("Path('file').read_text()", "Path.read_text()", "process.atomic"),
        ("os.remove('file')", "os.remove()", "process.atomic"),
        ("httpx.get('http://partner')", "httpx.get()", "process.atomic"),
        ("socket.create_connection(('partner', 80))", "socket.create_connection()", "process.atomic"),
        ("subprocess.run(['ls'])", "subprocess.run()", "process.atomic"),
        ("print(order)", "print()", "process.log"),
        ("[wall() for each in range(3)]", "time.time()", "process.now()"),
        ("(lambda: wall())()", "time.time()", "process.now()"),
        ("time.localtime()", "time.localtime()", "process.now()"),
        ("os.getenv('HOME')", "os.getenv()", "process.atomic"),
        ("os.environ['HOME']", "os.environ", "process.atomic"),
        ("id(order)", "id()", "process.uuid()"),
        ("hash('a')", "hash()", "hashlib"),
        ("logging.info('x')", "logging.info()", "process.log"),
        ("logger.warning('x')", "logger.warning()", "process.log"),
        ("started", "started holds datetime.datetime.now(), which", "process.now()"),
        ("dice.choice([1, 2])", "dice holds random.Random(), which", "process.random"),
        ("place.write_text('x')", "Path.write_text()", "process.atomic"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_named_with_its_line_and_what_to_write_instead(
    folder: Path, code: str, written_as: str, instead: str
) -> None:
    [said] = mistakes(folder, f"pass\n{code}")

    assert said.startswith(f"process.py, line {FIRST_LINE + 1}: {written_as} ")
    assert instead in said


@pytest.mark.parametrize(
    "code",
    [
        "dt.datetime.fromisoformat('2026-01-01')",
        "random.Random(7).random()",
        "uuid.UUID(int=3)",
        "uuid.uuid5(uuid.NAMESPACE_URL, 'x')",
        "os.path.join('a', 'b')",
        "Path('a') / 'b'",
        "time.strftime('%Y', process.now().timetuple())",
        "open = len\nopen([])",
        "def print(x): return x\nprint(3)",
        "time = process\ntime.time()",
        "for n in (1, 2): pass",
        "for n in sorted({'a', 'b'}): pass",
        "sum(len(each) for each in {'a', 'b'})",
        "{each for each in {'a', 'b'}}",
        "1 in {'a', 'b'}",
        "for n in {1, 2, 3}: pass",
        "await process.atomic(lambda connection: open('file'), 3)",
        "def work(connection): open('file')\nawait process.atomic(work)",
        "asyncio.CancelledError",
        "raise httpx.HTTPError('no')",
        "process.log.info('x')",
        "seen = set()\nseen.add(3)",
        "for n in sorted(list({'a', 'b'})): pass",
        "work = lambda connection: open('file')\nawait process.atomic(work)",
        "asyncio.iscoroutinefunction(len)",
        "time.localtime(3)",
        "seeded.random()",
        "logger = process.log\nlogger.info('x')",
        "names = {'a', 'b'}\nfor n in sorted(names): pass",
        "names = {'a', 'b'}\nnames = ['a']\nfor n in names: pass",
        "names: set[int] = set()\nnames.add(3)\nfor n in names: pass",
        "names = {1, 2}\nfor n in names: pass",
        "names = {'a'}\nsum(len(n) for n in names), max(*names, 'c')",
        "for n in {1} | {2}: pass",
        "def later(names):\n    for n in names: pass\nlater({'a'})",
        "', '.join(sorted({'a'}))",
        "taken = process.receive(case)\nawait process.listen(taken)",
        "[1].pop()",
        "await process.receive(case, type='Payment')",
        "process.log.info('x'), process.random.random(), process.id",
    ],
)
def test_what_is_allowed_raises_no_alarm(folder: Path, code: str) -> None:
    assert mistakes(folder, code) == []


def test_function_for_atomic_may_do_anything_and_a_helper_that_is_called_may_not(folder: Path) -> None:
    helpers = """
    def charge(connection, card):
        print(open(card).read(), wall())

    def price(order):
        return rate() * 2

    def rate():
        return random.random()

    def unused():
        return random.random()
    """

    said = mistakes(folder, "price(order)\nawait process.atomic(charge, 'card')", after=helpers)

    assert said == [
        "process.py, line 25: random.random() gives another value when the code is replayed; write process.random, as in process.random.random()"
    ]


def test_helper_in_a_module_beside_it_is_looked_at_too(folder: Path) -> None:
    (folder / "helping.py").write_text("import time\n\ndef helper():\n    return time.time()\n")

    [said] = mistakes(folder, "from helping import helper\nhelper()")

    assert said.startswith("helping.py, line 4: time.time()")


def test_set_has_no_order(folder: Path) -> None:
    said = mistakes(
        folder,
        """
        for name in {"a", "b"}:
            pass
        names = [each for each in set(order.json())]
        ordered = list(frozenset(names))
        """,
    )

    assert [each.partition(":")[0] for each in said] == [f"process.py, line {FIRST_LINE + n}" for n in (1, 3, 4)]
    assert said[0].endswith("a set has another order in every process; write sorted(...) around it")


@pytest.mark.parametrize(
    "code",
    [
        "for name in names: pass",
        "[each for each in names]",
        "[each + other for each in 'ab' for other in names]",
        "{each: 1 for each in names}",
        "list(names)",
        "for name in names - {'a'}: pass",
        "for name in {'c'} | set(order.json()): pass",
        "for name in names.union('c'): pass",
        "for name in everywhere: pass",
        "', '.join(names)",
        "', '.join(each for each in names)",
        "[*names]",
        "await process.parallel(*{process.delay(timedelta(1)), process.delay(timedelta(2))})",
        "a, b = names",
        "dict.fromkeys(names)",
        "names.pop()",
        "names |= {'c'}; list(names)",
    ],
)
def test_order_of_a_variable_that_holds_a_set_is_refused(folder: Path, code: str) -> None:
    head = HEAD.replace("dice =", "everywhere = frozenset({'a', 'b'}); dice =")

    [said] = mistakes(folder, f"names = set(order.json())\n{code}", head=head)

    assert said.startswith(f"process.py, line {FIRST_LINE + 1}: ")
    assert "sorted(...)" in said


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("await process.sleep(3)", "process has no 'sleep'; did you mean process.delay?"),
        ("await process.recieve(case)", "process has no 'recieve'; did you mean process.receive?"),
        ("await process.receive(case, type='Paymnt')", "the set 'case' has no type 'Paymnt'; did you mean 'Payment'?"),
        ("await process.receive(case, type='Order')", "the set 'case' has no type 'Order'; add it to `types`"),
        ("process.map('short', order)", "the orchestration has no map 'short' (there are: none); name it under `maps`"),
        ("with process.scope(): pass", "a scope may wait; write async with process.scope(...)"),
        ("own(process)", "without `await` it does nothing; write await own(...)"),
        (
            "await process.receive(other)",
            "nothing initializes the set 'other', so no message can follow it; write initializes=other in a Receive or "
            "in process.send",
        ),
    ],
)
def test_what_the_process_cannot_do_is_named(folder: Path, code: str, sentence: str) -> None:
    own = "async def own(process: Process) -> None:\n    await process.delay(timedelta(1))\n"
    head = HEAD.replace("dice =", 'other = Correlation("OrderId", types=["Payment"]); dice =')

    assert mistakes(folder, code, head=head, after=own) == [f"process.py, line {FIRST_LINE}: {sentence}"]


@pytest.mark.parametrize("sent", ["initializes=other", "initializes=[case, other]", "**more"])
def test_set_may_be_initialized_by_what_is_sent(folder: Path, sent: str) -> None:
    head = HEAD.replace("dice =", 'other = Correlation("OrderId", types=["Payment"]); more = {}; dice =')

    assert (
        mistakes(folder, f"await process.send(customer, order, {sent})\nawait process.receive(other)", head=head) == []
    )


def test_await_of_a_foreign_coroutine_is_refused_and_of_ones_own_is_not(folder: Path) -> None:
    own = """
    async def own(process: Process) -> None:
        process.delay(timedelta(1))
        await process.delay(timedelta(1))
    """

    said = mistakes(folder, "await own(process)\nawait httpx.whatever(3)\nawait httpx.helper(process)", after=own)

    assert said == [
        f"process.py, line {FIRST_LINE + 1}: await httpx.whatever() waits for an event loop, and there is none; await what process has",
        f"process.py, line {FIRST_LINE + 5}: without `await` it does nothing; write await process.delay(...)",
    ]


def test_all_mistakes_are_said_at_once(folder: Path) -> None:
    wrong = HEAD.replace('types=["Payment"]', 'types=["Payment", "Reminder", "Paymnt"]').replace(
        "P.Amount > 0", "(P.Amount > 5) & (P.Amount < 3)"
    )

    said = mistakes(
        folder,
        'wall()\nprocess.message("Invoyce", {})',
        head=wrong,
        application=APPLICATION.replace("Customer: Mail", "Custmer: Mail"),
    )

    assert said == [
        "process.py, line 9: port 'Customer' is bound to nothing; write bind: {Customer: NAME}, the name of a send port, a group or an orchestration, or `direct`",
        "process.py, line 10: a message of type 'Reminder' has no 'OrderId' to correlate by: its schema does not promote 'OrderId'; write promote: {OrderId: ...} in the schema, or leave 'Reminder' out",
        "process.py, line 10: no schema declares the message type 'Paymnt'; did you mean 'Payment'?",
        "process.py, line 12: the filter of Receive('Order') matches no message: no value of 'Amount' satisfies Amount > 5 AND Amount < 3",
        "process.py, line 13: `bind` names the port 'Custmer', and there is none of that name; did you mean 'Customer'?",
        "process.py, line 15: time.time() gives another time when the code is replayed; write process.now()",
        "process.py, line 16: no schema declares the message type 'Invoyce'; declare it under `schemas`",
    ]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("P.Amount > 0", "P.Amuont > 0", "line 12: the filter of Receive('Order'): property 'Amuont' is not declared; did you mean 'Amount'?"),
        ("P.Amount > 0", "'Amount > much'", "line 12: the filter of Receive('Order'):"),
        ("P.Amount > 0", "P.MessageType == 'Payment'", "line 12: the filter of Receive('Order') matches no message"),
        ('Receive("Order"', 'Receive("Ordre"', "line 12: no schema declares the message type 'Ordre'; did you mean 'Order'?"),
        ('Correlation("OrderId"', 'Correlation("OrdrId"', "line 10: property 'OrdrId' is not declared; did you mean 'OrderId'?"),
        ('Correlation("OrderId"', 'Correlation("Note"', "line 10: a message of type 'Payment' has no 'Note' to correlate by"),
        ('Correlation("OrderId"', 'Correlation("Note"', "line 12: a message of type 'Order' has no 'Note' to correlate by"),
        ("P.Amount > 0", "P.Note == 'x'", "line 12: the filter of Receive('Order') matches no message: a message of type 'Order' has no 'Note'"),
        ("process: Process, order: Message", "process: Process", "line 13: it is called with the process and the message"),
        ("initializes=case)", "initializes=case), late='next'", "line 13: late='next' is for convoys, and this is none"),
        ("P.Amount > 0", "P.Amount > 0 and P.Note == 'x'", "line 12: module 'process' cannot be loaded: FilterError"),
        ("initializes=case)", "initializes=case), late='never'", "line 12: module 'process' cannot be loaded: "),
        ("import asyncio", "import nowhere, asyncio", "line 1: module 'process' cannot be loaded: ModuleNotFoundError"),
    ],
)  # fmt: skip
def test_wrong_declaration_is_named_with_its_line(folder: Path, old: str, new: str, sentence: str) -> None:
    said = mistakes(folder, head=HEAD.replace(old, new))

    assert any(sentence in each for each in said), said


@pytest.mark.parametrize("wanted", ["~P.Note.exists()", "(P.Note == 'x') | (P.Amount > 3)"])
def test_filter_that_some_message_matches_raises_no_alarm(folder: Path, wanted: str) -> None:
    assert mistakes(folder, head=HEAD.replace("P.Amount > 0", wanted)) == []


def test_property_that_code_promotes_may_be_in_a_filter(folder: Path) -> None:
    after = """
    async def other(process: Process) -> None:
        await process.send(customer, process.message("Order", {}, promote={"Note": "x"}))
    """

    assert mistakes(folder, head=HEAD.replace("P.Amount > 0", "P.Note == 'x'"), after=after) == []


def test_code_of_the_application_may_promote_what_a_schema_does_not(folder: Path) -> None:
    own = APPLICATION.replace(
        "send_ports:", 'pipelines: [{name: own, disassemble: json, components: ["components:promote"]}]\nsend_ports:'
    )

    assert mistakes(folder, head=HEAD.replace('Correlation("OrderId"', 'Correlation("Note"'), application=own) == []


def test_request_to_a_port_that_does_not_answer_is_refused(folder: Path) -> None:
    [said] = mistakes(folder, "await process.request(customer, order)")

    assert said == (
        f"process.py, line {FIRST_LINE}: nothing answers customer; bind it to a send port with `response`, or use send"
    )


def test_port_of_a_module_beside_it_may_be_bound(folder: Path) -> None:
    (folder / "desk.py").write_text(
        "from crossdock import Port\n\ndesk = Port('Desk')\n\n"
        "async def tell(process, message):\n    await process.send(desk, message)\n"
    )

    said = mistakes(
        folder,
        "import desk\nawait desk.tell(process, order)",
        application=APPLICATION.replace("{Customer: Mail}", "{Customer: Mail, Desk: Mail}"),
    )

    assert said == []


def test_request_to_whoever_subscribes_may_be_answered(folder: Path) -> None:
    direct = APPLICATION.replace("Customer: Mail", "Customer: direct")

    assert mistakes(folder, "await process.request(customer, order)", application=direct) == []
