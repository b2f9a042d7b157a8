# fulfilment.py
from datetime import timedelta
from crossdock import Correlation, Message, P, Port, Process, Receive, orchestration

warehouse, customer = Port("Warehouse"), Port("Customer")
case = Correlation("OrderId", types=["Payment", "Cancellation"])        # what may join a running instance

@orchestration(Receive("Order", P.Amount > 0, initializes=case))
async def fulfil(process: Process, order: Message) -> None:
    await process.send(customer, process.message("Invoice", order.json()))
    answer = await process.receive(case, timeout=timedelta(days=14))    # None: the time is over
    if answer is None or answer.type == "Cancellation":
        await process.send(customer, process.message("Closed", {"id": order["OrderId"]}))
    else:
        await process.send(warehouse, process.message("Ship", order.json()))
