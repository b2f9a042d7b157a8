# batches.py: the activating type follows its own set: a sequential convoy
from datetime import timedelta
from crossdock import Correlation, Message, Port, Process, Receive, orchestration

lot, batches = Correlation("Customer", types=["Line"]), Port("Batches")

@orchestration(Receive("Line", initializes=lot), late="next")           # late lines open the next instance
async def collect(process: Process, first: Message) -> None:
    lines, closes = [first.json()], process.now() + timedelta(minutes=1)
    while len(lines) < 100 and (line := await process.receive(lot, until=closes)):
        lines.append(line.json())
    await process.send(batches, process.message("Batch", {"customer": first["Customer"], "lines": lines}))
