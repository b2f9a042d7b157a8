"""The examples that show patterns (scatter-gather, splitter and aggregator, approval, resequencer), run in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

import approval
import parcels
import quotes
import resequence
from crossdock.application.deploy import deployment_of
from crossdock.application.load import load_application
from crossdock.orchestration.run import Completed, Waiting
from orchestrating import BEGIN, Driver

EXAMPLES = Path(__file__).parents[2] / "examples"
APPLICATIONS = ["shop.py", "batching.yaml", "trips.py", "quoting.yaml", "packing.yaml", "expenses.yaml", "streams.yaml"]


@pytest.mark.parametrize("name", APPLICATIONS)
def test_application_of_an_example_deploys(name: str) -> None:
    deployment = deployment_of(load_application(EXAMPLES / name), EXAMPLES / name, text_limit=256)

    assert len(deployment.orchestrations) == 1


def a_demand() -> Driver:
    driver = Driver(quotes.ask_for_quotes, schemas={"Demand": {"DemandId": "demand"}})
    driver.activate("Demand", {"demand": "D1"})
    return driver


def test_best_of_the_quotes_that_come_in_time_is_taken() -> None:
    driver = a_demand()
    driver.respond(1, "Quote", {"price": 12})
    driver.respond(3, "Quote", {"price": 9})
    driver.fire()

    assert driver.sends[-1] == (
        "Buyer",
        "BestQuote",
        {"demand": "D1", "quote": {"supplier": "East", "price": 9}},
    )
    assert driver.state() == Completed()


def test_demand_that_nobody_answers_ends_without_a_quote() -> None:
    driver = a_demand()
    driver.fail_request(1)
    driver.fail_request(2)
    driver.fire()

    assert driver.sends[-1][2] == {"demand": "D1", "quote": None}


def a_packing_order() -> Driver:
    driver = Driver(parcels.pack, schemas={"PackingOrder": {"OrderId": "id"}})
    driver.activate("PackingOrder", {"id": "O1", "lines": [{"item": "cup"}, {"item": "pot"}]})
    return driver


def test_order_is_split_into_lines_and_shipped_when_all_are_packed() -> None:
    driver = a_packing_order()
    for number in (2, 2, 1):
        driver.arrive("order_case", "Packed", {"id": "O1", "number": number, "weight": number})

    assert [(port, type_) for port, type_, _ in driver.sends] == [
        ("Packing", "PackingLine"),
        ("Packing", "PackingLine"),
        ("Dispatch", "Shipment"),
    ]
    assert [parcel["weight"] for parcel in driver.sends[-1][2]["parcels"]] == [1, 2]


def test_office_hears_of_lines_that_are_not_packed_in_two_days() -> None:
    driver = a_packing_order()
    driver.arrive("order_case", "Packed", {"id": "O1", "number": 1})
    driver.fire()

    assert driver.sends[-1] == ("Office", "PackingLate", {"id": "O1", "missing": [2]})
    assert (driver.now - BEGIN).days == 2


def an_expense() -> Driver:
    driver = Driver(approval.approve, schemas={"Expense": {"ClaimId": "claim"}})
    driver.activate("Expense", {"claim": "C1", "cost": 250})
    return driver


def test_decision_after_a_reminder_is_booked() -> None:
    driver = an_expense()
    driver.fire()
    driver.arrive("claim_case", "Decision", {"claim": "C1", "approved": True})

    assert [(port, body) for port, _, body in driver.sends] == [
        ("Manager", {"claim": "C1", "reminder": 0}),
        ("Manager", {"claim": "C1", "reminder": 1}),
        ("Bookkeeping", {"claim": "C1", "approved": True}),
    ]


def test_expense_that_nobody_decides_on_in_a_week_is_refused() -> None:
    driver = an_expense()
    while isinstance(driver.state(), Waiting):
        driver.fire()

    assert (driver.now - BEGIN).days == 7
    assert len(driver.sends) == 5
    assert driver.sends[-1] == ("Bookkeeping", "Approval", {"claim": "C1", "approved": False})


def events(*numbers: int, last: int) -> Driver:
    driver = Driver(resequence.resequence, schemas={"Event": {"Stream": "stream"}})
    for place, number in enumerate(numbers):
        body = {"stream": "S1", "number": number, "last": number == last}
        if place == 0:
            driver.activate("Event", body)
        else:
            driver.arrive("stream", "Event", body)
    return driver


def test_events_leave_in_the_order_of_their_numbers() -> None:
    driver = events(3, 1, 4, 2, last=4)

    assert [body["number"] for _, _, body in driver.sends] == [1, 2, 3, 4]
    assert driver.state() == Completed()


def test_gap_is_reported_after_an_hour() -> None:
    driver = events(1, 3, last=4)
    driver.fire()

    assert driver.sends[-1] == ("Gaps", "Gap", {"stream": "S1", "missing": 2, "held": [3]})
