"""The track: what was published, matched and refused, and what became of each reference, as true as the MessageBox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import settling
from box import AT_ONCE, PROPERTIES, a_publication, deployment, ids, listed
from crossdock.errors import UsageError
from crossdock.maintenance.tracking import KeepTrack, PackTrack
from crossdock.message.message import Message, Part
from crossdock.message.property import PropertyType, Value
from crossdock.message.publication import Express, InPlaceOf, Publication, Settles
from crossdock.messagebox.agent import Agent
from crossdock.messagebox.deployment import DeployedLocation, Deployment
from crossdock.messagebox.settle import Complete
from crossdock.messagebox.step import Step
from crossdock.messagebox.track import Event, Route, Tracked
from crossdock.subscription.expression import P
from express import a_message, claim, delivered_now, deploy, living, port, publish, rows
from server_clock import shift_clock

NORWAY, SWEDEN = {"Region": "NO"}, {"Region": "SE"}
MANY = 40  # more than go by the function for a few


def published(agent: Agent, count: int, promoted: Mapping[str, Value] = NORWAY) -> list[Message]:
    """So many messages in one call: a few, or more."""
    messages = [a_message(agent, promoted) for _ in range(count)]
    publish(agent, *messages)
    return messages


def found(agent: Agent, *messages: Message) -> list[Tracked]:
    return agent.track.find([each.id for each in messages])


def happened(agent: Agent, *messages: Message) -> list[tuple[str, int | None]]:
    return [(event.event, event.attempt) for event in agent.track.events(found(agent, *messages))]


def subscription(agent: Agent, name: str) -> int:
    [(id_,)] = rows(
        agent.database,
        "SELECT subscription.id FROM subscription JOIN service ON service.id = service_id WHERE name = %s",
        name,
    )
    return int(id_)


def tracked_rows(agent: Agent) -> int:
    tables = ("track_published", "track_personal", "track_body", "track_few", "track_settled")
    return sum(int(rows(agent.database, f"SELECT count(*) FROM {table}")[0][0]) for table in tables)


@pytest.mark.parametrize("count", [1, MANY])
def test_message_is_found_by_its_id_the_moment_publish_returns(agent: Agent, count: int) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"), port("All", "EXISTS(Region)"))
    before = datetime.now(UTC) - timedelta(minutes=1)

    messages = published(agent, count)

    [each] = found(agent, messages[-1])
    assert each.id == messages[-1].id
    assert each.context == {"promoted": NORWAY, "written": {}}
    assert set(each.routes) == {Route(subscription(agent, name)) for name in ("Norway", "All")}
    assert each.epoch == agent.epoch().number
    assert before < each.at < datetime.now(UTC) + timedelta(minutes=1)
    assert (each.refusals, each.code, each.parents) == ((), None, ())


@pytest.mark.parametrize("count", [1, MANY])
def test_packing_changes_nothing_that_is_found(agent: Agent, count: int) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"), port("Stopped", "Region = 'NO'"))
    agent.subscriptions.stop("Stopped")
    messages = published(agent, count) + published(agent, 1, {"Amount": Decimal("7.50")})
    before = found(agent, *messages)

    PackTrack(agent).run_once()

    assert rows(agent.database, "SELECT count(*) FROM track_few") == [(0,)]
    assert found(agent, *messages) == before
    assert len(before) == count + 1


def test_source_application_and_location_are_tracked(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Norway="Region = 'NO'"))
    [first, second] = listed(agent, "one", "two")
    many = a_publication(agent, first, *[NORWAY] * MANY)
    few = a_publication(agent, second, NORWAY, failures=1)

    agent.publish([many])
    agent.publish([few])

    wanted = [many.messages[3], few.messages[0], few.failures[0].message]
    assert [(each.application, each.location) for each in found(agent, *wanted)] == [("orders", "orders.in")] * 3
    [failed] = found(agent, few.failures[0].message)
    assert (failed.code, failed.reason) == ("document-invalid", "the file is not JSON")


@pytest.mark.parametrize("count", [1, MANY])
def test_what_nobody_wants_says_why(agent: Agent, count: int) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))

    messages = published(agent, count, SWEDEN)

    [each] = found(agent, messages[0])
    assert (each.code, each.routes) == ("no-subscriber", ())
    assert each.reason is not None
    assert each.reason.startswith("No subscription matches")


@pytest.mark.parametrize("count", [1, MANY])
def test_refusal_names_the_subscription_and_the_labels_that_its_host_lacks(agent: Agent, count: int) -> None:
    deploy(
        agent, port("Norway", "Region = 'NO'"), port("Safe", "Region = 'NO'", host="Vault"), hosts={"Vault": ["secret"]}
    )
    messages = [a_message(agent, NORWAY, labels=["secret"]) for _ in range(count)]

    publish(agent, *messages)

    [each] = found(agent, messages[0])
    assert each.labels == ("secret",)
    assert each.routes == (Route(subscription(agent, "Safe")),)
    assert each.refusals == ((subscription(agent, "Norway"), ("secret",)),)


@pytest.mark.parametrize("count", [1, MANY])
def test_delivery_is_an_event_with_its_attempt_and_times(agent: Agent, count: int) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    messages = published(agent, count)

    [reference] = [each for each in delivered_now(agent) if each.message.id == messages[0].id]

    [event] = agent.track.events(found(agent, messages[0]))
    assert (event.event, event.message_id, event.sequence) == ("delivered", messages[0].id, reference.sequence)
    assert (event.attempt, event.service_id) == (1, reference.service_id)
    assert event.claimed_at is not None
    assert event.claimed_at <= event.at


def test_retry_is_seen_with_its_attempt_and_reason_and_so_is_what_follows(agent: Agent) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    host = agent.configuration.hosts()["Default"]
    [message] = published(agent, 1)
    with living(agent) as life:
        [reference] = claim(agent, life)
        settling.retry(agent, host, life.instance, [(reference.sequence, AT_ONCE, "the partner is down")])
        agent.queues.requeue_due(host)
        claim(agent, life)
        settling.suspend(agent, host, life.instance, [(reference.sequence, "refused")])
    agent.suspended.resume([message.id])
    with living(agent) as life:
        claim(agent, life)
        settling.give_back(agent, host, life.instance, [reference.sequence])
    delivered_now(agent)

    events = agent.track.events(found(agent, message))

    assert [(each.event, each.attempt, each.reason) for each in events] == [
        ("retried", 1, "the partner is down"),
        ("suspended", 2, "refused"),
        ("resumed", 2, None),
        ("given-back", 0, None),
        ("delivered", 1, None),
    ]


def test_stopped_port_suspends_and_starting_it_resumes(agent: Agent) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    agent.subscriptions.stop("Norway")
    [few], many = published(agent, 1), published(agent, MANY)
    agent.subscriptions.start("Norway")

    for message in (few, many[0]):
        events = agent.track.events(found(agent, message))
        assert [(each.event, each.code) for each in events] == [("suspended", "port-stopped"), ("resumed", None)]


def test_terminated_message_is_still_found(agent: Agent) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    [message] = published(agent, 1, SWEDEN)

    agent.suspended.terminate([message.id])

    assert [event for event, _ in happened(agent, message)] == ["terminated"]


@pytest.mark.parametrize("count", [1, MANY])
def test_message_that_is_routed_again_is_one_message_with_its_new_route(agent: Agent, count: int) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    messages = published(agent, count, SWEDEN)
    deploy(agent, port("Norway", "Region = 'NO'"), port("Sweden", "Region = 'SE'"))
    published(agent, 5)

    agent.route_again([each.id for each in messages])
    delivered_now(agent)

    [each] = found(agent, messages[0])
    assert each.code == "no-subscriber"
    assert each.routes == (Route(subscription(agent, "Sweden")),)
    assert [event for event, _ in happened(agent, messages[0])] == ["rerouted", "delivered"]


def test_dead_host_is_an_event(agent: Agent, database: str) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    [message] = published(agent, 1)
    with living(agent) as life:
        claim(agent, life)
        rows(database, "UPDATE claimed SET claimed_by = -1 RETURNING 1")  # as of an instance that is gone

        agent.queues.release_dead(agent.configuration.hosts()["Default"])

    assert [event for event, _ in happened(agent, message)] == ["given-back"]


@pytest.mark.parametrize("count", [1, MANY])
def test_answer_has_its_request_as_parent(agent: Agent, count: int) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"), port("Sweden", "Region = 'SE'"))
    host = agent.configuration.hosts()["Default"]
    [request] = published(agent, 1)
    answers = [a_message(agent, SWEDEN) for _ in range(count)]
    with living(agent) as life:
        [reference] = claim(agent, life)
        cause = Settles(host, life.instance, reference.sequence)
        agent.publish([Publication(host, tuple(answers), cause=cause, service_id=reference.service_id)])

    for _ in range(2):
        [answer] = found(agent, answers[0])
        assert (answer.parents, answer.application) == ((request.id,), "orders")
        assert {each.id for each in agent.track.children(request.id)} == {each.id for each in answers}
        assert [event for event, _ in happened(agent, request)] == ["answered"]
        PackTrack(agent).run_once()


def test_parents_of_steps_that_commit_together_are_their_own(agent: Agent) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"), port("Sweden", "Region = 'SE'"))
    host = agent.configuration.hosts()["Default"]
    published(agent, 2)
    with living(agent) as life:
        references = claim(agent, life)
        made = {each.message.id: a_message(agent, SWEDEN) for each in references}
        agent.step([Step(host, life.instance, [Complete(each)], [made[each.message.id]]) for each in references])

    for parent, child in made.items():
        assert [each.id for each in agent.track.children(parent)] == [child.id]
        assert found(agent, child)[0].parents == (parent,)


def test_document_that_goes_through_the_pipeline_again_has_the_suspended_one_as_parent(agent: Agent) -> None:
    agent.subscriptions.deploy(deployment(Norway="Region = 'NO'"))
    location, host = ids(agent)
    [sequence] = listed(agent, "broken")
    broken = a_publication(agent, sequence, failures=1)
    agent.publish([broken])
    [suspended] = agent.suspended.messages()
    mended = a_message(agent, NORWAY)

    agent.publish([Publication(host, (mended,), cause=InPlaceOf(host, suspended.sequence, location))])

    assert found(agent, mended)[0].parents == (suspended.id,)
    assert [event for event, _ in happened(agent, broken.failures[0].message)] == ["replaced"]


def levels(agent: Agent, location: Any = "events", service: Any = "events") -> int:
    """One location and one port with these levels; gives the location."""
    places = [DeployedLocation("in", "Default", {}, location)]
    agent.subscriptions.deploy(
        Deployment("orders", PROPERTIES, places, [port("Norway", "Region = 'NO'", track=service)])
    )
    return ids(agent)[0]


def from_location(agent: Agent, location: int, count: int) -> list[Message]:
    messages = [a_message(agent, NORWAY, parts=[Part("body", b"%d" % n)]) for n in range(count)]
    host = agent.configuration.hosts()["Default"]
    agent.publish([Publication(host, tuple(messages), cause=Express(location))])
    return messages


@pytest.mark.parametrize("count", [1, MANY])
def test_off_means_that_nothing_is_written(agent: Agent, count: int) -> None:
    location = levels(agent, "off", "off")

    from_location(agent, location, count)
    delivered_now(agent)
    PackTrack(agent).run_once()

    assert tracked_rows(agent) == 0


@pytest.mark.parametrize("count", [1, MANY])
def test_what_is_off_is_left_out_beside_what_is_not(agent: Agent, count: int) -> None:
    location = levels(agent, "off")
    hidden = [a_message(agent, NORWAY) for _ in range(count)]
    shown = [a_message(agent, NORWAY) for _ in range(count)]
    host = agent.configuration.hosts()["Default"]

    agent.publish([Publication(host, tuple(hidden), cause=Express(location)), Publication(host, tuple(shown))])

    assert [each.id for each in found(agent, *hidden, *shown)] == [each.id for each in shown]
    PackTrack(agent).run_once()
    assert [each.id for each in found(agent, *hidden, *shown)] == [each.id for each in shown]


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(("location", "service"), [("bodies", "events"), ("events", "bodies")])
def test_bodies_are_kept_where_a_location_or_a_port_wants_them(
    agent: Agent, count: int, location: str, service: str
) -> None:
    messages = from_location(agent, levels(agent, location, service), count)

    for _ in range(2):
        kept = agent.track.bodies(found(agent, *messages))
        assert kept == {each.id: each.body for each in messages}
        PackTrack(agent).run_once()


def test_bodies_are_not_kept_unasked(agent: Agent) -> None:
    messages = from_location(agent, levels(agent), 1) + from_location(agent, ids(agent)[0], MANY)

    assert agent.track.bodies(found(agent, *messages)) == {}


PERSON = {"Region": "NO", "Name": 'Kari "K" {Nordmann}'}


def personal(agent: Agent, count: int) -> list[Message]:
    properties = {**PROPERTIES, "Name": PropertyType.TEXT, "Phone": PropertyType.INTEGER}
    made = Deployment("orders", properties, [], [port("Norway", "Region = 'NO'")], personal=["Name", "Phone"])
    agent.subscriptions.deploy(made)
    messages = [a_message(agent, PERSON, written={"Phone": 4711, "Note": "x"}) for _ in range(count)]
    publish(agent, *messages)
    return messages


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("packed", [False, True])
def test_personal_values_are_kept_apart_and_given_to_whoever_asks_for_them(
    agent: Agent, count: int, packed: bool
) -> None:
    messages = personal(agent, count)
    if packed:
        PackTrack(agent).run_once()

    [hidden] = agent.track.find([messages[0].id])
    [shown] = agent.track.find([messages[0].id], personal=True)

    assert hidden.context == {"promoted": NORWAY, "written": {"Note": "x"}, "personal": ["Name", "Phone"]}
    assert shown.context == {"promoted": PERSON, "written": {"Phone": {"integer": "4711"}, "Note": "x"}}


@pytest.mark.parametrize("packed", [False, True])
def test_personal_values_are_found_only_by_whoever_asks_for_them(agent: Agent, packed: bool) -> None:
    messages = personal(agent, 1) + personal(agent, MANY)
    if packed:
        PackTrack(agent).run_once()

    name = P.Name == 'KARI "k" {nordmann}'
    assert agent.track.search(name).messages == []
    assert len(agent.track.search(name, personal=True).messages) == len(messages)
    assert len(agent.track.search(P.Region == "no").messages) == len(messages)


def test_values_in_the_segments_hold_nothing_personal(agent: Agent, database: str) -> None:
    personal(agent, 1)
    personal(agent, MANY)
    PackTrack(agent).run_once()

    from crossdock.messagebox.track_segment import Segment

    for (content,) in rows(database, "SELECT content FROM track_published"):
        assert all(b"Kari" not in context and b"4711" not in context for context in Segment.unpack(content).contexts)


def test_search_goes_on_where_it_ended_and_gives_the_newest_first(agent: Agent) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    messages = published(agent, MANY)
    for _ in range(5):
        messages += published(agent, 1)
    PackTrack(agent).run_once()
    for _ in range(5):
        messages += published(agent, 1)

    pages: list[Sequence[Tracked]] = []
    before: str | None = None
    while not pages or before is not None:
        page = agent.track.search(P.Region == "NO", limit=7, before=before)
        pages.append(page.messages)
        before = page.before

    every = [each for page in pages for each in page]
    assert [each.id for each in every] == [each.id for each in sorted(every, key=lambda each: (each.at, each.id))][::-1]
    assert {each.id for each in every} == {each.id for each in messages}
    assert len(every) == len(messages)
    assert max(map(len, pages)) == 7


def test_search_stays_in_its_window(agent: Agent, database: str) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    shift_clock(database, timedelta(days=-1))
    published(agent, 1)
    published(agent, MANY)
    shift_clock(database, timedelta(0))
    [late] = published(agent, 1)

    today = agent.track.search(None, since=datetime.now(UTC) - timedelta(hours=1))
    yesterday = agent.track.search(None, until=datetime.now(UTC) - timedelta(hours=1))

    assert [each.id for each in today.messages] == [late.id]
    assert len(yesterday.messages) == MANY + 1


def test_place_in_a_list_that_is_none_is_refused(agent: Agent) -> None:
    with pytest.raises(UsageError, match="no place in a list"):
        agent.track.search(None, before="yesterday")


def test_old_days_are_dropped_and_the_next_ones_made(agent: Agent, database: str) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    keep = KeepTrack(agent, timedelta(days=2), timedelta(days=1))
    keep.run_once()
    old = published(agent, MANY)
    delivered_now(agent)
    assert found(agent, old[0])

    shift_clock(database, timedelta(days=4))
    changed = keep.run_once()
    new = published(agent, MANY)

    assert changed > 0
    assert found(agent, old[0]) == []
    assert [each.id for each in found(agent, new[0])] == [new[0].id]
    assert keep.run_once() == 0


def test_what_came_before_its_day_was_made_is_kept_and_then_forgotten(agent: Agent, database: str) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    messages = published(agent, MANY)
    keep = KeepTrack(agent, timedelta(days=2), timedelta(days=2))

    keep.run_once()
    assert len(found(agent, *messages)) == MANY

    shift_clock(database, timedelta(days=4))
    keep.run_once()
    assert found(agent, *messages) == []


def test_nothing_is_tracked_of_a_transaction_that_is_rolled_back(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    monkeypatch.setattr("crossdock.messagebox.publish.check_epoch", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        published(agent, MANY)

    assert tracked_rows(agent) == 0


def test_events_are_of_the_messages_that_were_asked_for(agent: Agent) -> None:
    deploy(agent, port("Norway", "Region = 'NO'"))
    messages = published(agent, MANY)
    delivered_now(agent)

    events: list[Event] = agent.track.events(found(agent, *messages[:3]))

    wanted: set[UUID] = {each.id for each in messages[:3]}
    assert {each.message_id for each in events} == wanted
    assert len(events) == 3
