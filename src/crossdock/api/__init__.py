"""The REST API of the console, and who is asking. Read `app.py` first, then `gate.py`; the routes are in `routes/`.

Pages are in `crossdock.console`, whose `install(app)` adds them. A page takes `Service` (and `SignedIn`, where it asks
for rights) of `gate.py`; raises what the service raises; and sets `app.state.error_page`. The form at `/sign-in` posts
`token`, or `user` and `password`, and `next` to `/session`; wrong ones come back as `/sign-in?problem=CODE&next=PATH`.
`/session/end` signs out. Acts on many things are `app.state.operations`, numbers that change `app.state.live`.
"""
