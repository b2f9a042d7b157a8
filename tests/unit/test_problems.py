"""Everything that is wrong with an application is said at once: each problem with its artefact and its line."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossdock.administration.dry_run import lint_application
from crossdock.application.deploy import deployment_of
from crossdock.application.folders import masks_meet
from crossdock.application.load import load_application
from crossdock.errors import ApplicationError
from crossdock.settings import Settings

MANY = """\
application: orders
properties: {Region: text, Amount: decimal}
schemas:
  - {type: Order, format: json, promote: {Region: region}}
  - type: Bill
    format: xml
    promote: {Total: /Bill/Total}
receive_ports:
  - name: In
    locations:
      - {adapter: file, address: "in/*.json", pipeline: json, schema: Order}
      - {adapter: file, address: "in/**/x", pipeline: xml, name: Second}
      - {adapter: ftp, address: "somewhere", pipeline: jsn, name: Third}
send_ports:
  - name: A
    adapter: file
    address: "out/%Colour%.json"
    filter: Region = "EU"
    pipeline: {encode: ["checks:two"]}
  - name: A
    adapter: file
    address: out/b
    filter: Amount > 'much'
send_port_groups:
  - {name: Both, ports: [A, Nobody]}
orchestrations:
  - {function: "nowhere:flow"}
"""


def refused(path: Path) -> str:
    with pytest.raises(ApplicationError) as caught:
        deployment_of(load_application(path), path, text_limit=256)
    return str(caught.value)


def lines(path: Path, text: str) -> dict[int, list[str]]:
    """What is said of each line of the file."""
    found: dict[int, list[str]] = {}
    for line, problem in re.findall(rf"^{re.escape(str(path))}, line (\d+): (.*)$", text, re.MULTILINE):
        found.setdefault(int(line), []).append(problem)
    return found


def test_every_problem_of_a_yaml_file_is_named_with_its_line(folder: Path) -> None:
    (folder / "checks.py").write_text("def two(one, other):\n    return one\n")
    path = folder / "app.yaml"
    path.write_text(MANY)

    said = lines(path, refused(path))

    assert "schema 'Order': property 'Region': 'region' is not a path" in said[4][0]
    assert "schema 'Bill': it promotes 'Total', which is not declared" in said[5][0]
    assert "receive location 'Second': the address 'in/**/x' is a folder without wildcards" in said[12][0]
    assert "receive location 'Third': there is no adapter 'ftp'" in said[13][0]
    assert "its address has the macro %Colour%" in said[17][0]
    assert "text goes in single quotes" in said[18][0]
    assert "'checks:two' is called with one argument, and takes (one, other)" in said[19][0]
    assert "the name 'A' is used for more than one send port" in said[20][0]
    assert "property 'Amount' is decimal, and 'much' is not a decimal" in said[23][0]
    assert "send port group 'Both': there is no send port 'Nobody'" in said[25][0]
    assert "orchestration 'flow': " in said[27][0]
    assert sorted(said) == [4, 5, 12, 13, 17, 18, 19, 20, 23, 25, 27]


def test_every_wrong_key_is_named_with_its_line(folder: Path) -> None:
    path = folder / "app.yaml"
    path.write_text(
        "application: orders\nsend_ports:\n  - name: A\n    adapter: file\n    adress: out\n  - {name: 5, dynamic: true}\n"
        "schemas:\n  - {type: Order, format: yson}\n"
    )

    said = lines(path, refused(path))

    assert "send_ports[0].adress: unknown key 'adress'; did you mean 'address'?" in said[5]
    assert "send_ports[1].name: input should be a valid string, not 5" in said[6]
    assert "schemas[0].format: input should be 'json', 'xml' or 'flat', not 'yson'" in said[8]


def test_every_problem_of_a_python_file_is_named_with_its_line(folder: Path) -> None:
    path = folder / "app.py"
    path.write_text(
        "from crossdock import Application, P, text\n"
        "app = Application('orders')\n"
        "app.schema('Order', format='json', promote={'Region': text('$.region')})\n"
        "app.send_port('A', filter=P.Colour == 'red').file('out/%MessageID%')\n"
        "app.send_port('B', filter=P.Region > 5).file('out/%MessageID%')\n"
        "app.receive_port('In').file('in/*', pipeline='jsn')\n"
    )
    filters = lines(path, refused(path))
    path.write_text(path.read_text().replace("P.Colour == 'red'", "None").replace("P.Region > 5", "None, priority=5"))
    others = lines(path, refused(path))

    assert [*filters] == [4, 5]
    assert "send port 'A', filter: " in filters[4][0]
    assert others == {
        6: ["receive location 'In.file': there is no pipeline 'jsn' (there are: json, xml, flat, passthrough)"]
    }


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("def no(): pass", "'own:no' is called with one argument, and takes ()"),
        ("async def no(document): pass", "'own:no' is a coroutine, and here a plain function is called"),
        ("def no(*, document): pass", "'own:no' is called with one argument, and takes (*, document)"),
    ],
)
@pytest.mark.parametrize("place", ["components: [own:no]", "decode: [own:no]"])
def test_function_that_cannot_be_called_as_it_will_be_is_refused(
    folder: Path, function: str, problem: str, place: str
) -> None:
    (folder / "own.py").write_text(function)
    path = folder / "app.yaml"
    path.write_text(
        f"application: a\npipelines: [{{name: mine, disassemble: passthrough, {place}}}]\n"
        'receive_ports: [{name: In, locations: [{adapter: file, address: "in/*", pipeline: mine}]}]\n'
    )

    assert problem in refused(path)


@pytest.mark.parametrize(
    "function", ["def yes(document): pass", "def yes(document, more=1): pass", "from gzip import decompress as yes"]
)
def test_function_that_takes_one_argument_is_fine(folder: Path, function: str) -> None:
    (folder / "own.py").write_text(function)
    path = folder / "app.yaml"
    path.write_text(
        "application: a\npipelines: [{name: mine, disassemble: passthrough, decode: [own:yes]}]\n"
        'receive_ports: [{name: In, locations: [{adapter: file, address: "in/*", pipeline: mine}]}]\n'
    )

    assert deployment_of(load_application(path), path, text_limit=256).application == "a"


def shared(folder: Path, locations: str, port: str = "out/%MessageID%") -> Path:
    path = folder / "app.yaml"
    path.write_text(
        f"application: a\nreceive_ports: [{{name: In, locations: [{locations}]}}]\n"
        f'send_ports: [{{name: Out, adapter: file, address: "{port}"}}]\n'
    )
    return path


def location(name: str, address: str, options: str = "{}") -> str:
    return f'{{name: {name}, adapter: file, address: "{address}", pipeline: passthrough, options: {options}}}'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (location("A", "in/*"), location("B", "in/*.json")),
        (location("A", "in/*.json"), location("B", "other/../in/a*")),
        (location("A", "in/*", "{subfolders: true}"), location("B", "in/eu/*.xml")),
    ],
)
def test_two_locations_that_may_list_the_same_file_are_refused(folder: Path, first: str, second: str) -> None:
    (folder / "other").mkdir()

    assert "receive location 'B': 'A' may list the same files" in refused(shared(folder, f"{first}, {second}"))


@pytest.mark.parametrize(
    "port", ["in/%MessageID%.json", "in/fixed.json", "%MessageID%/a.json", "in/../in/%SourceFileName%"]
)
def test_port_that_writes_where_a_location_receives_is_a_finding(folder: Path, port: str) -> None:
    (folder / "in").mkdir()

    [finding] = lint_application(shared(folder, location("A", "in/*.json"), port), Settings())

    assert (finding.port, finding.kind) == ("Out", "received again")
    assert "receive location 'A' may list what this port writes" in finding.message


@pytest.mark.parametrize(
    ("locations", "port"),
    [
        (location("A", "in/*.json") + ", " + location("B", "in/*.xml"), "out/%MessageID%.json"),
        (location("A", "in/[ab]*") + ", " + location("B", "in/[cd]*"), "out/%MessageID%.json"),
        (location("A", "in/*.json") + ", " + location("B", "in/eu/*.json"), "in/us/%MessageID%.json"),
        (location("A", "in/*.json"), "in/%MessageID%.xml"),
    ],
)
def test_folders_that_are_shared_without_harm_are_fine(folder: Path, locations: str, port: str) -> None:
    assert lint_application(shared(folder, locations, port), Settings()) == []


MASKS = st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[!a]"]), max_size=4).map("".join)


@given(MASKS, MASKS, st.text("abc", max_size=5))
def test_masks_that_fit_one_name_meet(one: str, other: str, name: str) -> None:
    if fnmatchcase(name, one) and fnmatchcase(name, other):
        assert masks_meet(one, other)


@given(MASKS, MASKS)
def test_masks_that_meet_fit_one_name(one: str, other: str) -> None:
    names = _names(6)

    assert masks_meet(one, other) == any(fnmatchcase(name, one) and fnmatchcase(name, other) for name in names)


def _names(longest: int) -> list[str]:
    names = [""]
    for _ in range(longest):
        names += [name + letter for name in names if len(name) == max(map(len, names)) for letter in "abc"]
    return names
