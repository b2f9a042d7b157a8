# approval.py: a person decides, by http, within a week; a reminder goes out every two days
from datetime import timedelta

from crossdock import Correlation, Message, P, Port, Process, Receive, orchestration

manager, bookkeeping = Port("Manager"), Port("Bookkeeping")
claim_case = Correlation("ClaimId", types=["Decision"])


@orchestration(Receive("Expense", P.Cost >= 100, initializes=claim_case))
async def approve(process: Process, expense: Message) -> None:
    await process.send(manager, process.message("ApprovalRequest", {"claim": expense["ClaimId"], "reminder": 0}))
    closes, reminder = process.now() + timedelta(days=7), 0
    decision = None
    while decision is None and process.now() < closes:
        decision = await process.receive(claim_case, until=min(closes, process.now() + timedelta(days=2)))
        if decision is None and process.now() < closes:
            reminder += 1
            request = {"claim": expense["ClaimId"], "reminder": reminder}
            await process.send(manager, process.message("ApprovalRequest", request))
    approved = decision is not None and bool(decision.json()["approved"])
    await process.send(bookkeeping, process.message("Approval", {"claim": expense["ClaimId"], "approved": approved}))
