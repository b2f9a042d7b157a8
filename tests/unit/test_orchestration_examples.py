"""The orchestrations that the design prints, as files, run from their first message to their end."""

from __future__ import annotations

from typing import Any

import pytest

import batches
import fulfilment
import travel
from crossdock.orchestration.run import AtomicWanted, Completed, Waiting
from orchestrating import Driver

SHOP = {"Order": {"OrderId": "id", "Amount": "amount"}, **{kind: {"OrderId": "id"} for kind in ("Payment", "Closed")}}


def an_order() -> Driver:
    driver = Driver(fulfilment.fulfil, schemas=SHOP)
    driver.activate("Order", b'{"id": "A1", "amount": 12.50}')
    return driver


def test_a_paid_order_is_shipped_with_its_numbers_as_they_were_written() -> None:
    driver = an_order()
    driver.arrive("case", "Payment", {"id": "A1"})

    assert [(port, type_) for port, type_, _ in driver.sends] == [("Customer", "Invoice"), ("Warehouse", "Ship")]
    assert driver.sent[1].body == b'{"id":"A1","amount":12.50}'
    assert driver.state() == Completed()
    assert driver.timers == {}


def test_a_cancelled_order_is_closed() -> None:
    driver = an_order()
    driver.arrive("case", "Cancellation", {"id": "A1"})

    assert driver.sends[-1] == ("Customer", "Closed", {"id": "A1"})
    assert driver.sent[-1].promoted == {"OrderId": "A1", "BTS.MessageType": "Closed"}


def test_an_order_that_nobody_pays_is_closed_after_two_weeks() -> None:
    driver = an_order()
    waiting = driver.state()
    driver.fire()

    assert waiting == Waiting("receive any message of case until 2026-01-15T00:00:01+00:00", "fulfilment.py:11")
    assert driver.sends[-1] == ("Customer", "Closed", {"id": "A1"})
    assert driver.state() == Completed()


def test_the_order_subscribes_its_instance_to_what_follows() -> None:
    driver = an_order()

    assert driver.steps[0].subscribes == [(fulfilment.case, {"OrderId": "A1"})]


@pytest.mark.parametrize("lines", [0, 3, 99])
def test_a_batch_has_the_lines_of_a_minute_or_a_hundred(lines: int) -> None:
    driver = Driver(batches.collect, schemas={"Line": {"Customer": "customer"}}, replay=lines < 10)
    driver.activate("Line", {"customer": "ACME", "number": 0})
    for number in range(lines):
        driver.arrive("lot", "Line", {"customer": "ACME", "number": number + 1})
    if lines < 99:
        driver.fire()

    assert driver.state() == Completed()
    assert driver.timers == {}
    ((port, type_, body),) = driver.sends
    assert (port, type_, body["customer"]) == ("Batches", "Batch", "ACME")
    assert [line["number"] for line in body["lines"]] == list(range(lines + 1))


CARD = {"number": "4711", "price": 900}


class Bank:
    """Has so much for the card; stands for the connection of the step."""

    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.rowcount = 0

    def execute(self, _: str, card: dict[str, Any]) -> Bank:
        self.rowcount = int(self.balance >= card["price"])
        self.balance -= self.rowcount * card["price"]
        return self


def a_trip() -> Driver:
    driver = Driver(travel.book, schemas={"Trip": {"TripId": "trip"}})
    driver.activate("Trip", {"trip": "T1", "card": CARD})
    return driver


def kinds(driver: Driver) -> list[tuple[str, str]]:
    return [(port, type_) for port, type_, _ in driver.sends]


RESERVED = [("Hotel", "Reserve"), ("Flight", "Reserve")]
UNDONE = [("Flight", "Cancel"), ("Hotel", "Cancel"), ("Desk", "TripFailed")]


def test_a_trip_is_reserved_and_charged() -> None:
    driver, bank = a_trip(), Bank(1000)
    driver.respond(2)
    driver.respond(1)
    assert driver.state() == AtomicWanted(1, travel.charge, (CARD,), "travel.py:26")
    driver.perform(bank)

    assert bank.balance == 100
    assert driver.state() == Completed()
    assert kinds(driver) == RESERVED


def test_a_refused_card_undoes_the_reservations_last_first() -> None:
    driver = a_trip()
    driver.respond(1)
    driver.respond(2)
    driver.perform(Bank(10))

    assert driver.state() == Completed()
    assert kinds(driver) == RESERVED + UNDONE
    assert driver.sends[-1][2] == {"why": "card 4711 has no 900"}


def test_a_hotel_that_gives_up_is_noticed_when_the_flight_has_answered() -> None:
    driver = a_trip()
    driver.fail_request(1, "full")
    assert kinds(driver) == RESERVED
    driver.respond(2)

    assert kinds(driver) == RESERVED + UNDONE
    assert driver.sends[-1][2] == {"why": "port 'Hotel' gave up on the request: full"}


def test_partners_that_do_not_answer_in_five_minutes_are_told_to_forget_it() -> None:
    driver = a_trip()
    driver.fire()
    driver.fire()

    assert driver.state() == Completed()
    assert kinds(driver) == RESERVED + UNDONE
    assert driver.sends[-1][2] == {"why": "port 'Hotel' has not answered the request in time"}
