"""The examples, each run in a MessageBox of its own by the kit for authors, to its end."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crossdock.message.message import Message
from crossdock.testing.orchestrations import TemporaryMessageBox, messagebox, messagebox_server

__all__ = ["messagebox", "messagebox_server"]
EXAMPLES = Path(__file__).parents[2] / "examples"


def bodies(messages: tuple[Message, ...] | Any) -> list[Any]:
    return [message.json() for message in messages]


def types(messages: tuple[Message, ...] | Any) -> list[str | None]:
    return [message.type for message in messages]


def test_cancelled_order_is_closed(messagebox: TemporaryMessageBox) -> None:
    messagebox.deploy(EXAMPLES / "shop.py")
    messagebox.publish("Order", {"id": "A1", "amount": Decimal("12.50")})
    messagebox.publish("Cancellation", {"id": "A1"})

    assert types(messagebox.sent_to("Mail")) == ["Invoice", "Closed"]
    assert messagebox.sent_to("Mail")[0].body == b'{"id":"A1","amount":12.50}'
    assert messagebox.instances() == []


def test_lines_of_a_customer_leave_as_one_batch(messagebox: TemporaryMessageBox) -> None:
    messagebox.deploy(EXAMPLES / "batching.yaml")
    for number, customer in enumerate(["ACME", "Ajax", "ACME"]):
        messagebox.publish("Line", {"customer": customer, "number": number})
    assert len(messagebox.instances()) == 2
    messagebox.clock.jump(minutes=1, seconds=1)
    messagebox.publish("Line", {"customer": "ACME", "number": 9})

    batches = {batch["customer"]: batch["lines"] for batch in bodies(messagebox.sent_to("BatchFiles"))}
    assert {name: [line["number"] for line in lines] for name, lines in batches.items()} == {
        "ACME": [0, 2],
        "Ajax": [1],
    }
    assert len(messagebox.instances()) == 1


@pytest.fixture
def trips(messagebox: TemporaryMessageBox) -> TemporaryMessageBox:
    """A card with 1000, and a trip for 900."""
    with psycopg.connect(messagebox.agent.database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA travel")
        connection.execute("CREATE TABLE travel.card (number text, balance numeric)")
        connection.execute("INSERT INTO travel.card VALUES ('4711', 1000)")
        connection.execute("GRANT USAGE ON SCHEMA travel TO PUBLIC")
        connection.execute("GRANT SELECT, UPDATE ON travel.card TO PUBLIC")
    messagebox.deploy(EXAMPLES / "trips.py")
    messagebox.publish("Trip", {"trip": "T1", "card": {"number": "4711", "price": 900}})
    return messagebox


def balance(box: TemporaryMessageBox) -> int:
    with psycopg.connect(box.agent.database) as connection:
        row = connection.execute("SELECT balance FROM travel.card").fetchone()
    assert row is not None
    return int(row[0])


def test_trip_is_reserved_and_charged_in_one_transaction(trips: TemporaryMessageBox) -> None:
    trips.answer("Seats", "Reserved", {"trip": "T1"})
    assert balance(trips) == 1000
    trips.answer("Rooms", "Reserved", {"trip": "T1"})

    assert balance(trips) == 100
    assert trips.instances() == []
    assert types(trips.sent_to("Rooms")) == ["Reserve"]
    assert trips.sent_to("TravelDesk") == ()


def test_hotel_that_refuses_undoes_the_trip(trips: TemporaryMessageBox) -> None:
    trips.refuse("Rooms", "no room")
    trips.answer("Seats", "Reserved", {"trip": "T1"})

    assert types(trips.sent_to("Rooms")) == types(trips.sent_to("Seats")) == ["Reserve", "Cancel"]
    [failed] = bodies(trips.sent_to("TravelDesk"))
    assert "no room" in failed["why"]
    assert balance(trips) == 1000


def test_partners_that_do_not_answer_undo_the_trip(trips: TemporaryMessageBox) -> None:
    trips.clock.jump(minutes=5, seconds=1)

    assert types(trips.sent_to("Seats")) == ["Reserve", "Cancel"]
    assert types(trips.sent_to("TravelDesk")) == ["TripFailed"]
    assert trips.instances() == []


def test_best_quote_of_those_that_answer_is_taken(messagebox: TemporaryMessageBox) -> None:
    messagebox.deploy(EXAMPLES / "quoting.yaml")
    messagebox.publish("Demand", {"demand": "D1"})
    messagebox.answer("NorthQuotes", "Quote", {"price": 12})
    messagebox.refuse("SouthQuotes")
    messagebox.answer("EastQuotes", "Quote", {"price": 9})

    [best] = bodies(messagebox.sent_to("BestQuotes"))
    assert best == {"demand": "D1", "quote": {"supplier": "East", "price": 9}}


def test_order_is_split_and_put_together_again(messagebox: TemporaryMessageBox) -> None:
    messagebox.deploy(EXAMPLES / "packing.yaml")
    messagebox.publish("PackingOrder", {"id": "O1", "lines": [{"item": "cup"}, {"item": "pot"}]})
    for line in reversed(bodies(messagebox.sent_to("Packers"))):
        messagebox.publish("Packed", {"id": line["id"], "number": line["number"], "item": line["item"]})

    [shipment] = bodies(messagebox.sent_to("Carrier"))
    assert [parcel["item"] for parcel in shipment["parcels"]] == ["cup", "pot"]


def test_person_decides_days_later_after_a_reminder(messagebox: TemporaryMessageBox) -> None:
    messagebox.deploy(EXAMPLES / "expenses.yaml")
    messagebox.publish("Expense", {"claim": "C1", "cost": 250})
    messagebox.publish("Expense", {"claim": "C2", "cost": 20})
    messagebox.clock.jump(days=2, seconds=1)
    messagebox.publish("Decision", {"claim": "C1", "approved": True})

    assert [request["reminder"] for request in bodies(messagebox.sent_to("ManagerMail"))] == [0, 1]
    assert types(messagebox.sent_to("Ledger")) == ["Expense", "Approval"]
    assert bodies(messagebox.sent_to("Ledger"))[1] == {"claim": "C1", "approved": True}


def test_events_of_two_streams_leave_in_order(messagebox: TemporaryMessageBox) -> None:
    messagebox.deploy(EXAMPLES / "streams.yaml")
    for stream, number in [("A", 2), ("B", 1), ("A", 3), ("B", 2), ("A", 1)]:
        messagebox.publish("Event", {"stream": stream, "number": number, "last": number == 3})

    left = [(event["stream"], event["number"]) for event in bodies(messagebox.sent_to("OrderedEvents"))]
    assert left == [("B", 1), ("B", 2), ("A", 1), ("A", 2), ("A", 3)]
    messagebox.clock.jump(hours=1, seconds=1)
    assert bodies(messagebox.sent_to("GapReports")) == [{"stream": "B", "missing": 3, "held": []}]
