"""The client against a console: a method for each operation, typed answers, and errors with the sentence."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from console_box import APPLICATION, Seeded
from console_fixtures import box, console
from crossdock.administration.service import PortOverview, SuspendedRow
from crossdock.client import AsyncClient, Client, Page, calls
from crossdock.errors import ApplicationError, NotAllowedError, OutdatedPlanError, UnavailableError, UsageError
from served import Served
from walk import until
from who_may import ALLOWED

__all__ = ["box", "console"]


@pytest.fixture
def client(console: Served) -> Iterator[Client]:
    with Client(console.url, console.token("client", "administrator"), reason="Prøve") as made:
        yield made


def methods(of: type) -> dict[str, inspect.Signature]:
    found = inspect.getmembers(of, inspect.isfunction)
    return {name: inspect.signature(each) for name, each in found if not name.startswith("_") and name != "close"}


def test_both_clients_have_a_method_for_every_operation() -> None:
    assert methods(Client).keys() == ALLOWED.keys()
    assert methods(AsyncClient) == methods(Client) | {"live": methods(AsyncClient)["live"]}


def test_method_has_the_parameters_and_the_text_of_its_operation() -> None:
    assert str(inspect.signature(Client.instance)) == "(self, /, id_: 'str') -> 'DescribedInstance'"
    assert Client.instance.__doc__ == AsyncClient.instance.__doc__ == "One instance in full."


def test_every_call_is_an_operation_of_the_description(console: Served) -> None:
    with console.client() as http:
        described = http.get("/api/v1/openapi.json").json()["paths"]
    known = {(verb.upper(), path.count("/")): None for path, operations in described.items() for verb in operations}
    names = {operation["operationId"] for path in described.values() for operation in path.values()}

    assert known
    assert names - {"live"} == {name for name in vars(calls) if name in ALLOWED and name != "live"}


def test_lists_are_typed_rows(client: Client, box: Seeded) -> None:
    page = client.ports(limit=2)

    assert isinstance(page, Page)
    assert all(isinstance(each, PortOverview) for each in page.items)
    assert client.ports(limit=2, cursor=page.next).items[0].name not in {each.name for each in page.items}
    lists = (client.applications, client.groups, client.orchestrations, client.hosts, client.waiting, client.operations)
    assert all(isinstance(each(), list) for each in lists)
    assert [each.id for each in client.instances().items] == [box.instance]
    assert client.instance(box.instance).orchestration == "Flow"
    assert client.subscriptions().items
    assert client.locations().items[0].name == "orders.in"
    assert client.me().administrator
    assert client.minutes() == []
    assert client.access() == []


def test_a_message_is_asked_for_and_read(client: Client, box: Seeded) -> None:
    [suspended] = client.suspended(port="Stopped").items

    assert isinstance(suspended, SuspendedRow)
    assert client.message(suspended.id).promoted["Region"] == "Stopped"
    assert client.part(suspended.id) == b"content"
    assert {each.name for each in client.explain(suspended.id).subscriptions} >= {"Stopped", "Plain"}
    assert client.trace(suspended.id).id == box.suspended
    assert client.messages(where="Region = 'Stopped'").items[0].id == suspended.id
    assert client.suspended_groups("port")[0].group == "Stopped"


def test_acts_are_done_and_recorded_with_their_reason(client: Client, box: Seeded) -> None:
    assert client.stop("Plain").after == "stopped"
    assert client.start("Plain").after == "started"
    assert client.disable("orders.in").changed
    [published] = client.publish(b"hello", properties=["Region=NO"], key="once")
    assert client.publish(b"hello", properties=["Region=NO"], key="once") == [published]

    acts = box.agent.audit.list(person="token client")
    assert {row.reason for row in acts} == {"Prøve"}
    assert [row.action for row in acts] == ["publish", "disable", "start", "stop"]


def test_many_are_resumed_in_two_steps(client: Client, box: Seeded) -> None:
    box.held_back(3)
    preview = client.preview("terminate", port="Stopped")
    begun = client.execute(preview.token)
    until(lambda: client.operation(begun.id).state == "done", 60)

    assert (preview.total, client.operation(begun.id).done) == (4, 4)
    assert len(client.operation(begun.id, after=3).outcomes) == 1
    assert client.cancel_operation(begun.id).state == "done"


def test_an_application_is_applied_unless_something_changed_since_its_plan(client: Client) -> None:
    plan = client.plan(APPLICATION)
    assert client.apply(APPLICATION, planned=plan).changed
    with pytest.raises(OutdatedPlanError, match="has changed since the plan"):
        client.apply(APPLICATION, planned=plan)
    assert client.try_filter("Region = 'NO'", port="North").matched == 0
    client.undeploy("shop")


def test_problems_are_the_errors_of_the_service(console: Served, client: Client) -> None:
    with (
        Client(console.url, console.token("weak", "viewer")) as viewer,
        pytest.raises(NotAllowedError, match="takes the right"),
    ):
        viewer.stop("Plain")
    with pytest.raises(UsageError, match="There is no send port"):
        client.stop("a/b c?d")
    with pytest.raises(ApplicationError, match="unknown key"):
        client.apply("application: x\nnonsense: 1\n")
    with pytest.raises(UsageError, match=r"^where: "):
        client.messages(where="Nothing = 1")
    with Client(console.url, "wrong") as nobody, pytest.raises(NotAllowedError, match="credentials are wrong"):
        nobody.ports()
    with Client("http://127.0.0.1:1", "x") as away, pytest.raises(UnavailableError, match="cannot be reached"):
        away.ports()


def test_tokens_and_rights_are_given_and_taken(client: Client, console: Served) -> None:
    made = client.create_token("new", "viewer", grants=["bodies"], application="orders", expires="1d")
    with Client(console.url, made.token) as other:
        assert other.me().rights == ["bodies:orders", "viewer"]
        client.revoke_token("new")
        with pytest.raises(NotAllowedError):
            other.me()
    assert [row.name for row in client.tokens()] == ["client"]


def test_the_other_client_waits_with_await(console: Served) -> None:
    async def asked() -> list[str]:
        async with AsyncClient(console.url, console.token("async", "viewer")) as client:
            pages = await asyncio.gather(client.ports(), client.suspended())
            return [each.name for each in pages[0].items]

    assert asyncio.run(asked()) == ["Plain", "Stopped", "Other"]
