"""Groups of send ports: each state of a group and of a port, two copies, one order, and deployments that change them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from crossdock.application.deploy import deployment_of
from crossdock.application.model import ApplicationModel
from crossdock.errors import ApplicationError, UsageError
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.subscriptions import Transition
from express import at_ports, kinds, rows, unbalanced
from office import Office, eventually, written
from partner import partner
from walk import until

Made = Callable[..., Office]
State = Literal["started", "stopped", "unenlisted"]
STATES: tuple[State, ...] = ("started", "stopped", "unenlisted")


@pytest.fixture
def office(database: str, tmp_path: Path) -> Iterator[Made]:
    """Deploys an application and does not run it; at the end the books must balance."""
    made: list[Office] = []

    def deployed(*ports: dict[str, Any], groups: Mapping[str, list[str]], **more: Any) -> Office:
        made.append(Office(database, tmp_path, application(*ports, groups=groups, **more)))
        return made[-1]

    yield deployed
    for each in made:
        each.agent.close()
    assert unbalanced(database) == []


def application(*ports: dict[str, Any], groups: Mapping[str, list[str]], filter_: str = "Region = 'NO'") -> Any:
    """These ports, and groups of them that want what comes from Norway."""
    grouped = [{"name": name, "filter": filter_, "ports": members} for name, members in groups.items()]
    return {"properties": {"Region": "text"}, "send_ports": list(ports), "send_port_groups": grouped}


def a_port(name: str, **more: Any) -> dict[str, Any]:
    """A port with a folder of its own, that is given nothing by content."""
    return {"name": name, "adapter": "file", "address": f"{name}/%MessageID%", **more}


def put(agent: Agent, name: str, state: State) -> None:
    """Bring a port or a group that is started into this state."""
    {
        "started": agent.subscriptions.start,
        "stopped": agent.subscriptions.stop,
        "unenlisted": agent.subscriptions.unenlist,
    }[state](name)


def group_id(database: str, name: str) -> str:
    [(found,)] = rows(database, "SELECT group_id::text FROM send_port_group WHERE name = %s", name)
    return str(found)


def folders(folder: Path, *names: str) -> dict[str, list[bytes]]:
    """What was written by each port."""
    return {name: sorted(written(folder / name).values()) for name in names}


# What matches is given, and given to whom


@pytest.mark.parametrize("group", STATES)
@pytest.mark.parametrize("port", STATES)
def test_what_becomes_of_a_message_is_up_to_the_lower_state_of_group_and_port(
    office: Made, database: str, group: State, port: State
) -> None:
    made = office(a_port("A"), a_port("Other"), groups={"All": ["A", "Other"]})
    made.agent.subscriptions.stop("Other")
    transport = made.agent.configuration.transport_id("A")
    put(made.agent, "All", group)
    put(made.agent, "A", port)
    lower = max(group, port, key=STATES.index)

    made.publish("directly", BTS__SPTransportID=transport)
    made.publish("by content", Region="NO")
    made.publish("by the id of the group", BTS__SPGroupID=group_id(database, "All"))

    ready, suspended = at_ports(made.agent), at_ports(made.agent, "suspended")
    outcomes = {"started": (1, 0), "stopped": (0, 1), "unenlisted": (0, 0)}
    assert (ready.get("A", 0), suspended.get("A", 0)) == outcomes[port]
    assert (ready.get("All/A", 0), suspended.get("All/A", 0)) == tuple(2 * count for count in outcomes[lower])
    unrouted = (port == "unenlisted") + 2 * (group == "unenlisted")
    assert Counter(kind for kind, _ in kinds(made.agent))["unrouted"] == unrouted
    [listed] = made.agent.configuration.list_groups()
    assert (listed.state, made.port("A")["state"], made.port("All/A")["state"]) == (group, port, lower)


def test_port_that_matches_by_its_own_filter_and_by_its_groups_gets_two(office: Made, database: str) -> None:
    made = office(a_port("A", filter="Region = 'NO'"), a_port("B"), groups={"All": ["A", "B"], "Some": ["A"]})

    made.publish(Region="NO")
    made.publish(Region="SE")

    assert at_ports(made.agent) == {"A": 1, "All/A": 1, "All/B": 1, "Some/A": 1}
    assert kinds(made.agent) == [("unrouted", None)]
    made.publish(Region="SE", BTS__SPGroupID=group_id(database, "Some"))
    assert at_ports(made.agent) == {"A": 1, "All/A": 1, "All/B": 1, "Some/A": 2}


def test_group_without_a_filter_is_given_what_names_it_and_nothing_else(office: Made, database: str) -> None:
    made = office(a_port("A"), groups={})
    without = {"name": "All", "ports": ["A"]}
    made.deploy({**application(a_port("A"), groups={}), "send_port_groups": [without]})

    made.publish(Region="NO")
    made.publish(BTS__SPGroupID=group_id(database, "All"))

    assert (at_ports(made.agent), kinds(made.agent)) == ({"All/A": 1}, [("unrouted", None)])


def test_both_copies_of_a_message_are_sent_with_the_same_id(office: Made) -> None:
    with partner() as shop:
        made = office(a_port("A", adapter="http", address=shop.address, filter="Region = 'NO'"), groups={"All": ["A"]})

        with made.open():
            message = made.publish("twice", Region="NO")
            until(lambda: made.agent.statistics().ports == {"A": 1, "All/A": 1}, 30)

    assert [(each.body, each.headers["X-Crossdock-Message-ID"]) for each in shop.requests] == [
        (b"twice", str(message.id))
    ] * 2


# States


def test_stopped_group_and_stopped_port_keep_what_matches_until_both_are_started(office: Made, tmp_path: Path) -> None:
    made = office(a_port("A"), a_port("B"), groups={"All": ["A", "B"]})

    with made.open():
        made.agent.subscriptions.stop("All")
        made.agent.subscriptions.stop("A")
        for n in range(5):
            made.publish(str(n), Region="NO")
        assert made.agent.subscriptions.start("A") == Transition("A", "stopped", "started", resumed=0)
        made.agent.subscriptions.stop("A")
        assert at_ports(made.agent, "suspended") == {"All/A": 5, "All/B": 5}

        assert made.agent.subscriptions.start("All") == Transition("All", "stopped", "started", resumed=5)
        eventually(lambda: folders(tmp_path, "A", "B"), {"A": [], "B": [b"0", b"1", b"2", b"3", b"4"]})
        assert made.agent.subscriptions.start("A") == Transition("A", "stopped", "started", resumed=5)

        eventually(lambda: len(folders(tmp_path, "A")["A"]), 5)
        made.settled()
    assert kinds(made.agent) == []


def test_operations_on_a_group_leave_its_ports_as_they_are_and_the_other_way_round(office: Made) -> None:
    made = office(a_port("A"), a_port("B"), groups={"All": ["A", "B"]})

    made.agent.subscriptions.stop("A")
    made.agent.subscriptions.unenlist("All")
    assert [made.port(name)["state"] for name in ("A", "B")] == ["stopped", "started"]
    assert made.agent.subscriptions.enlist("All") == Transition("All", "unenlisted", "stopped")
    made.agent.subscriptions.start("A")
    made.agent.subscriptions.unenlist("B")

    assert [row.state for row in made.agent.configuration.list_groups()] == ["stopped"]
    assert [made.port(name)["state"] for name in ("All/A", "All/B")] == ["stopped", "unenlisted"]


def test_last_enlisted_port_of_an_enlisted_group_is_not_unenlisted(office: Made) -> None:
    made = office(a_port("A"), a_port("B"), groups={"All": ["A", "B"]})
    made.agent.subscriptions.unenlist("B")

    for state in ("started", "stopped"):
        with pytest.raises(UsageError, match=r"'A' is the last enlisted port of group 'All'. Unenlist the group first"):
            made.agent.subscriptions.unenlist("A")
        made.agent.subscriptions.stop("All")
        assert (made.port("A")["state"], state) == ("started", state)

    made.agent.subscriptions.unenlist("All")
    assert made.agent.subscriptions.unenlist("A").after == "unenlisted"


def test_group_without_an_enlisted_port_is_neither_enlisted_nor_started(office: Made) -> None:
    made = office(a_port("A"), groups={"All": ["A"]})
    made.agent.subscriptions.unenlist("All")
    made.agent.subscriptions.unenlist("A")

    for verb in (made.agent.subscriptions.start, made.agent.subscriptions.enlist):
        with pytest.raises(UsageError, match=r"No port of group 'All' is enlisted. Enlist one first"):
            verb("All")
    made.agent.subscriptions.enlist("A")
    assert made.agent.subscriptions.start("All").after == "started"


def test_member_of_a_group_is_not_changed_by_itself(office: Made) -> None:
    made = office(a_port("A"), groups={"All": ["A"]})

    with pytest.raises(UsageError, match=r"'All/A' follows its group and its port. Change 'All', or the port"):
        made.agent.subscriptions.stop("All/A")
    with pytest.raises(UsageError, match="There is no send port 'All/A'"):
        made.agent.configuration.transport_id("All/A")


# Order


def test_ordered_port_keeps_one_order_over_what_it_is_given_by_itself_and_by_its_group(
    office: Made, database: str
) -> None:
    with partner() as shop:
        made = office(a_port("Line", adapter="http", address=shop.address, ordered=True), groups={"All": ["Line"]})
        made.agent.subscriptions.stop("Line")
        by_group = {"BTS__SPGroupID": group_id(database, "All")}
        for n in range(0, 100, 2):
            made.publish(str(n), to="Line")
            made.publish(str(n + 1), **by_group)

        with made.open():
            made.agent.subscriptions.start("Line")
            for n in range(100, 200, 2):
                made.publish(str(n), **by_group)
                made.publish(str(n + 1), to="Line")
            until(lambda: made.agent.statistics().ports == {"Line": 100, "All/Line": 100}, 60)

    assert [each.body for each in shop.requests] == [str(n).encode() for n in range(200)]


# Deployment


def test_port_that_joins_a_group_is_given_what_comes_then_and_one_that_leaves_keeps_what_it_has(office: Made) -> None:
    a, b, c = a_port("A"), a_port("B"), a_port("C")
    made = office(a, b, c, groups={"All": ["A", "B"]})
    made.publish("first", Region="NO")
    made.agent.subscriptions.stop("All")

    made.deploy(application(a, b, c, groups={"All": ["B", "C"]}))
    made.publish("second", Region="NO")

    assert at_ports(made.agent) == {"All/A": 1, "All/B": 1}
    assert at_ports(made.agent, "suspended") == {"All/B": 1, "All/C": 1}
    assert [(row.state, row.ports) for row in made.agent.configuration.list_groups()] == [("stopped", ["B", "C"])]
    assert made.agent.subscriptions.start("All").resumed == 2


def test_group_that_is_removed_matches_nothing_and_brought_back_it_resumes(office: Made, tmp_path: Path) -> None:
    a, b = a_port("A"), a_port("B")
    made = office(a, b, groups={"All": ["A", "B"]})
    made.agent.subscriptions.stop("All")
    made.publish("kept", Region="NO")

    made.deploy(application(a, b, groups={}))
    lost = made.publish("unrouted", Region="NO")
    assert at_ports(made.agent, "suspended") == {"All/A": 1, "All/B": 1}
    with pytest.raises(UsageError, match="There is no send port, group or orchestration 'All' deployed"):
        made.agent.subscriptions.start("All")
    made.deploy(application(a, b, groups={"All": ["A", "B"]}))

    with made.open():
        made.agent.route_again([lost.id])
        eventually(lambda: folders(tmp_path, "A", "B"), {"A": [b"kept", b"unrouted"], "B": [b"kept", b"unrouted"]})
        made.settled()
    assert kinds(made.agent) == []


def test_port_that_is_gone_from_the_application_leaves_its_group_and_may_come_back(office: Made) -> None:
    a, b = a_port("A"), a_port("B")
    made = office(a, b, groups={"All": ["A", "B"]})

    made.deploy(application(b, groups={"All": ["B"]}))
    made.publish(Region="NO")
    with pytest.raises(UsageError, match="'B' is the last enlisted port of group 'All'"):
        made.agent.subscriptions.unenlist("B")
    made.deploy(application(a, b, groups={"All": ["A", "B"]}))
    made.publish(Region="NO")

    assert at_ports(made.agent) == {"All/A": 1, "All/B": 2}


def test_group_may_have_the_name_of_a_port_that_is_gone(office: Made) -> None:
    made = office(a_port("Out"), groups={})
    made.deploy(application(a_port("A"), groups={"Out": ["A"]}))

    assert made.agent.subscriptions.stop("Out").after == "stopped"
    assert made.agent.subscriptions.start("Out").after == "started"
    with pytest.raises(UsageError, match="'A' is the last enlisted port of group 'Out'"):
        made.agent.subscriptions.unenlist("A")


def test_new_filter_of_a_group_is_the_filter_of_all_its_ports(office: Made) -> None:
    a, b = a_port("A"), a_port("B")
    made = office(a, b, groups={"All": ["A", "B"]})

    made.deploy(application(a, b, groups={"All": ["A", "B"]}, filter_="Region = 'SE'"))
    made.publish(Region="NO")
    made.publish(Region="SE")

    assert (at_ports(made.agent), kinds(made.agent)) == ({"All/A": 1, "All/B": 1}, [("unrouted", None)])


DYNAMIC: dict[str, Any] = {"name": "D", "dynamic": True}
TWO_WAY: dict[str, Any] = {"name": "T", "adapter": "http", "address": "http://localhost/", "response": {}}


@pytest.mark.parametrize(
    ("ports", "groups", "problem"),
    [
        ([a_port("A")], {"All": ["A", "Nobody"]}, "send port group 'All': there is no send port 'Nobody'"),
        ([DYNAMIC], {"All": ["D"]}, "send port group 'All': 'D' is no static one-way port"),
        ([TWO_WAY], {"All": ["T"]}, "send port group 'All': 'T' is no static one-way port"),
        ([a_port("A")], {"All": ["A", "A"]}, "the name 'A' is used for more than one port of group 'All'"),
        ([a_port("A")], {"A": ["A"]}, "the name 'A' is used for more than one send port, group or orchestration"),
        ([a_port("A"), a_port("All/A")], {"All": ["A"]}, "the name 'All/A' is used for more than one"),
        (
            [a_port("A/B"), a_port("B")],
            {"All": ["A/B"], "All/A": ["B"]},
            "the name 'All/A/B' is used for more than one",
        ),
        ([a_port("A")], {"All": ["Other/A"], "Other": ["A"]}, "send port group 'All': there is no send port 'Other/A'"),
    ],
)
def test_wrong_group_is_refused_in_one_sentence(
    ports: list[dict[str, Any]], groups: dict[str, list[str]], problem: str
) -> None:
    model = ApplicationModel.model_validate({"application": "office", **application(*ports, groups=groups)})

    with pytest.raises(ApplicationError) as refused:
        deployment_of(model, Path("app.yaml"), text_limit=256)

    assert str(refused.value).startswith(f"app.yaml: {problem}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("theirs", ["All", "A"])
def test_names_of_ports_and_groups_are_unique_over_applications(office: Made, theirs: str) -> None:
    made = office(a_port("A"), groups={"All": ["A"]})
    other = application(a_port("B" if theirs == "A" else "All"), groups={"A": ["B"]} if theirs == "A" else {})

    with pytest.raises(ApplicationError, match=f"{theirs!r} already belongs to application 'office'"):
        made.deploy({**other, "application": "other"})
