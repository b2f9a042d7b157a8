# travel.py: a saga. `charge(connection, card)` works in the transaction of the step
from datetime import timedelta
from typing import Any
from crossdock import DeliveryFailed, Message, Port, Process, Receive, Timeout, orchestration

hotel, flight, desk = Port("Hotel"), Port("Flight"), Port("Desk")

class CardRefused(Exception):
    pass

def charge(connection: Any, card: dict[str, Any]) -> None:
    taken = connection.execute(
        "UPDATE travel.card SET balance = balance - %(price)s WHERE number = %(number)s AND balance >= %(price)s", card
    )
    if taken.rowcount == 0:
        raise CardRefused(f"card {card['number']} has no {card['price']}")

@orchestration(Receive("Trip"))
async def book(process: Process, trip: Message) -> None:
    async def reserve(port: Port) -> Message:
        scope.compensate(process.send, port, process.message("Cancel", {"trip": trip["TripId"]}))    # first: an answer may be late
        return await process.request(port, process.message("Reserve", trip.json()), timeout=timedelta(minutes=5))
    try:
        async with process.scope() as scope:
            await process.parallel(reserve(hotel), reserve(flight))
            await process.atomic(charge, trip.json()["card"])
    except (DeliveryFailed, Timeout, CardRefused) as error:             # undone already, last first
        await process.send(desk, process.message("TripFailed", {"why": str(error)}))
