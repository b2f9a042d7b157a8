# web.py: the same as web.yaml
from crossdock import Application, P, text

app = Application("web")
app.schema("Order", format="json", promote={"OrderId": text("$.id")})
app.schema("Receipt", format="json", promote={"ReceiptId": text("$.receipt")})
app.receive_port("Ask", two_way=True).http(
    "http://127.0.0.1:8080/ask", pipeline="json", schema="Order", options={"timeout": 30}
)
app.receive_port("Tell").http("http://127.0.0.1:8080/tell", pipeline="json", schema="Order")
app.send_port(
    "Shop", filter=(P.MessageType == "Order") & P.OrderId.exists(), response={"pipeline": "json", "schema": "Receipt"}
).http("http://127.0.0.1:9090/orders/%OrderId%", method="PUT", content_type="application/json", timeout=10)
app.send_port("Receipts", filter=P.SPName == "Shop").file("out/receipts/%MessageID%.json")
