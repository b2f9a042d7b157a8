# quotes.py: scatter-gather. Every supplier is asked at once, and the best of the answers is taken
from datetime import timedelta
from typing import Any

from crossdock import DeliveryFailed, Message, Port, Process, Receive, Timeout, orchestration

IN_TIME = timedelta(seconds=30)
suppliers = Port("North"), Port("South"), Port("East")
buyer = Port("Buyer")


@orchestration(Receive("Demand"))
async def ask_for_quotes(process: Process, demand: Message) -> None:
    async def ask(supplier: Port) -> dict[str, Any] | None:
        try:
            quote = await process.request(supplier, process.message("QuoteRequest", demand.json()), timeout=IN_TIME)
            return {"supplier": supplier.name, **quote.json()}
        except (DeliveryFailed, Timeout):
            return None  # who does not answer in time does not take part

    quotes = [each for each in await process.parallel(*(ask(supplier) for supplier in suppliers)) if each is not None]
    best = min(quotes, key=lambda each: each["price"], default=None)
    await process.send(buyer, process.message("BestQuote", {"demand": demand["DemandId"], "quote": best}))
