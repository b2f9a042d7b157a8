# parcels.py: a splitter and an aggregator. Each line of an order is packed by itself; all together make a shipment
from datetime import timedelta

from crossdock import Correlation, Message, Port, Process, Receive, orchestration

packing, dispatch, office = Port("Packing"), Port("Dispatch"), Port("Office")
order_case = Correlation("OrderId", types=["Packed"])


@orchestration(Receive("PackingOrder", initializes=order_case))
async def pack(process: Process, order: Message) -> None:
    wanted = order.json()
    for number, line in enumerate(wanted["lines"], start=1):  # the splitter
        await process.send(packing, process.message("PackingLine", {"id": wanted["id"], "number": number, **line}))
    packed: dict[int, object] = {}
    closes = process.now() + timedelta(days=2)
    while len(packed) < len(wanted["lines"]):  # the aggregator
        answer = await process.receive(order_case, until=closes)
        if answer is None:
            missing = [number for number in range(1, len(wanted["lines"]) + 1) if number not in packed]
            await process.send(office, process.message("PackingLate", {"id": wanted["id"], "missing": missing}))
            return
        packed[answer.json()["number"]] = answer.json()  # a line that comes twice counts once
    parcels = [packed[number] for number in sorted(packed)]
    await process.send(dispatch, process.message("Shipment", {"id": wanted["id"], "parcels": parcels}))
