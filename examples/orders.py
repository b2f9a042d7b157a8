# orders.py                                    (a .py application file holds exactly one Application)
from crossdock import Application, P, decimal, text

app = Application("orders")
app.schema("Order", format="json",
           promote={"OrderId": text("$.id"), "Region": text("$.region"), "Amount": decimal("$.amount")})
app.receive_port("OrdersIn").file("in/*.json", pipeline="json")
app.send_port("EuropeLarge", filter=(P.MessageType == "Order") & (P.Region == "EU") & (P.Amount >= 1000)) \
   .file("out/europe-large/%MessageID%.json")
app.send_port("Archive", filter=P.MessageType == "Order").file("out/all/%MessageID%.json")
