# resequence.py: a resequencer. The events of a stream leave in the order of their numbers, however they arrive
from datetime import timedelta

from crossdock import Correlation, Message, Port, Process, Receive, orchestration

ordered, gaps = Port("Ordered"), Port("Gaps")
stream = Correlation("Stream", types=["Event"])


@orchestration(Receive("Event", initializes=stream), late="next")
async def resequence(process: Process, first: Message) -> None:
    early, number, event = {}, 1, first
    while True:
        early[event.json()["number"]] = event
        while number in early:
            event = early.pop(number)
            await process.send(ordered, process.message("OrderedEvent", event.json()))  # an Event would come back
            if event.json().get("last"):
                return
            number += 1
        arrived = await process.receive(stream, timeout=timedelta(hours=1))
        if arrived is None:
            held = {"stream": first["Stream"], "missing": number, "held": sorted(early)}
            await process.send(gaps, process.message("Gap", held))
            return
        event = arrived
