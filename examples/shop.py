# shop.py
from crossdock import Application, decimal, text

app = Application("shop")
app.schema("Order", format="json", promote={"OrderId": text("$.id"), "Amount": decimal("$.amount")})
for kind in ("Payment", "Cancellation", "Invoice", "Closed", "Ship"):
    app.schema(kind, format="json", promote={"OrderId": text("$.id")})
app.receive_port("Orders").file("in/orders/*.json", pipeline="json", schema="Order")
app.receive_port("Payments").file("in/payments/*.json", pipeline="json", schema="Payment")
app.send_port("Mail").file("out/mail/%MessageID%.json")
app.send_port("Stock").file("out/stock/%MessageID%.json")
app.orchestration("fulfilment:fulfil", bind={"Warehouse": "Stock", "Customer": "Mail"})
