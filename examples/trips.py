# trips.py: the partners answer by http; `travel.card` is a table in the database of the MessageBox
from crossdock import Application, text

app = Application("trips")
app.schema("Trip", format="json", promote={"TripId": text("$.trip")})
for kind in ("Reserve", "Reserved", "Cancel"):
    app.schema(kind, format="json", promote={"TripId": text("$.trip")})
app.schema("TripFailed", format="json")
app.receive_port("Trips").file("in/trips/*.json", pipeline="json", schema="Trip")
for name, place in (("Rooms", "hotel"), ("Seats", "flight")):
    answer = {"pipeline": "json", "schema": "Reserved"}
    app.send_port(name, response=answer, retry={"count": 0}).http(f"http://127.0.0.1:9000/{place}")
app.send_port("Undone", filter="MessageType = 'Reserved' AND NOT EXISTS(EpmRRCorrelationToken)") \
   .file("out/undone/%MessageID%.json")                                 # what partners answer to a Cancel
app.send_port("TravelDesk").file("out/desk/%MessageID%.json")
app.orchestration("travel:book", bind={"Hotel": "Rooms", "Flight": "Seats", "Desk": "TravelDesk"})
