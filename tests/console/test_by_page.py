"""Lists that pages show: by key, with bounds, and with what the newest sample says."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from console_box import Seeded, seeded
from crossdock.administration.service import Administration, Selection
from crossdock.errors import UsageError
from crossdock.messagebox.agent import Agent
from express import deploy, port, publish


@pytest.fixture
def box(agent: Agent) -> Seeded:
    return seeded(agent)


@pytest.fixture
def service(agent: Agent) -> Administration:
    return Administration(agent, text_limit=256)


@pytest.mark.usefixtures("box")
def test_ports_come_by_name_page_by_page_with_their_filters(service: Administration) -> None:
    first = service.port_page(limit=2)
    second = service.port_page(limit=10, after=first[-1].name)

    assert [each.name for each in [*first, *second]] == ["Flow", "Other", "Plain", "Stopped"]
    assert [(each.kind, each.state) for each in second] == [("port", "started"), ("port", "stopped")]
    assert second[0].filter == "Region = 'NO'"
    assert second[0].sample is None  # nobody has looked yet


@pytest.mark.usefixtures("box")
def test_ports_are_found_by_application_state_and_part_of_a_name(service: Administration) -> None:
    assert [each.name for each in service.port_page(application="others")] == ["Other"]
    assert [each.name for each in service.port_page(state="stopped")] == ["Other", "Stopped"]
    assert [each.name for each in service.port_page(search="LAI")] == ["Plain"]
    assert [each.name for each in service.port_page(search="%")] == []


def test_port_has_the_figures_of_the_newest_sample(box: Seeded, service: Administration) -> None:
    box.agent.samples.take()

    [stopped] = service.find_ports(["Stopped"])

    assert stopped.sample is not None
    assert stopped.sample.suspended == 1
    assert [host.sample is not None for host in service.living_hosts()] == [True]


@pytest.mark.usefixtures("box")
def test_locations_come_without_their_secrets(service: Administration) -> None:
    [location] = service.location_page()

    assert (location.name, location.enabled) == ("orders.in", True)
    assert "hidden" not in str(location)


def test_instances_come_page_by_page_the_oldest_first(box: Seeded, service: Administration) -> None:
    for amount in range(4):
        publish(box.agent, {"Region": "IN", "BTS.MessageType": "Order", "Amount": Decimal(amount)})
    everything = [each.id for each in service.instances()]

    first = service.instance_page(limit=3)
    second = service.instance_page(limit=3, after=first.after)

    assert [each.id for each in [*first.instances, *second.instances]] == everything
    assert (len(first.instances), second.after) == (3, None)
    assert service.instance_page(state="suspended").instances == []
    assert len(service.instance_page(orchestration="Flow", where="Amount = 2").instances) == 1


@pytest.mark.usefixtures("box")
def test_instances_that_cannot_be_asked_for_are_refused(service: Administration) -> None:
    with pytest.raises(UsageError, match="No instance is ever"):
        service.instance_page(state="lazy")
    with pytest.raises(UsageError, match="is not where a page"):
        service.instance_page(after="nowhere")


def test_suspended_come_page_by_page_and_a_page_says_how_far_it_looked(box: Seeded, service: Administration) -> None:
    box.held_back(5)
    everything = [each.sequence for each in service.suspended()]

    first = service.suspended_page(Selection(everything=True), limit=4)
    second = service.suspended_page(Selection(everything=True), limit=4, after=first.after)
    none = service.suspended_page(Selection(type="Nothing"))

    assert [each.sequence for each in [*first.rows, *second.rows]] == everything
    assert second.after is None
    assert (list(none.rows), none.after, none.looked_at) == ([], None, len(everything))


@pytest.mark.parametrize(("by", "name"), [("code", "port-stopped"), ("port", "Stopped"), ("type", None)])
def test_suspended_are_grouped_with_their_last_hours(
    box: Seeded, service: Administration, by: str, name: str | None
) -> None:
    box.held_back(3)

    trends = service.suspended_trends(by)

    assert trends.complete
    assert trends.groups[0].group == name
    assert trends.groups[0].count >= 4
    assert (trends.groups[0].steps[-1], len(trends.groups[0].steps)) == (trends.groups[0].count, 24)


def test_chosen_rows_are_acted_on_and_other_deliveries_of_the_message_are_not(agent: Agent) -> None:
    service = Administration(agent, text_limit=256)
    deploy(agent, port("One", "Region = 'NO'"), port("Two", "Region = 'NO'"))
    for name in ("One", "Two"):
        service.stop(name)
    publish(agent, {"Region": "NO"})
    one, two = service.suspended()

    chosen = service.choose("terminate", Selection(ids=[one.id], sequences={one.sequence}))
    outcomes = list(service.terminate(chosen))

    assert [(each.port, each.done) for each in outcomes] == [(one.port, True)]
    assert [row.sequence for row in service.suspended()] == [two.sequence]


def test_routes_tell_what_was_matched_and_which_filters_nothing_met(box: Seeded, service: Administration) -> None:
    publish(box.agent, {"Region": "NO", "BTS.MessageType": "Order"})

    routes = service.routes(application="orders")

    matched = {(edge.source, edge.target): edge.count for edge in routes.matched}
    assert matched["Order", "Plain"] == 1
    assert matched["Order", "Flow"] == 1
    assert [each.name for each in routes.ports] == ["Flow", "Plain", "Stopped"]
    assert routes.looked_at == 3


def test_what_went_through_is_told_in_steps(box: Seeded, service: Administration) -> None:
    box.agent.cleanup.fold_counts()

    found = service.total_minutes(timedelta(hours=1), timedelta(minutes=5))

    assert sum(each.failed for each in found) >= 0


def test_part_of_a_message_is_read_as_text_up_to_a_bound(box: Seeded, service: Administration) -> None:
    [head] = service.part_heads(box.suspended)

    assert (head.name, head.text, head.whole) == ("body", "content", True)
    assert b"".join(service.part(box.suspended, "body")) == b"content"
    assert [row.action for row in service.audit(limit=2)] == ["read", "read"]
    with pytest.raises(UsageError, match="There is no part"):
        service.part(box.suspended, "none")
