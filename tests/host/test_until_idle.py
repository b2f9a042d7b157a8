"""When a run that is to end by itself has nothing left to do."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from threading import Event

from crossdock.application.runtime import Runtime
from crossdock.application.store import Store
from office import Office
from partner import Request, partner

MESSAGES = 20


def test_what_was_put_aside_for_a_slow_partner_is_waited_for(database: str, tmp_path: Path) -> None:
    def hesitating(_: Request) -> tuple[int, bytes]:
        if len(slow.requests) == 1:
            time.sleep(2)  # a partner that is slow at first is what is tested
        return 200, b""

    with partner() as slow, ExitStack() as stack:
        slow.respond = hesitating
        port = {"name": "Slow", "adapter": "http", "address": slow.address, "filter": "Region = 'NO'", "in_flight": 1}
        office = Office(database, tmp_path, {"properties": {"Region": "text"}, "send_ports": [port]})
        for _ in range(MESSAGES):
            office.publish(Region="NO")
        store = Store(office.settings)
        store.open()
        stack.callback(store.close)
        runtime = Runtime(office.settings, store, lambda *_: None, receives=False)
        runtime.start(stack)

        runtime.work(Event(), until_idle=True)

        assert (office.port("Slow")["delivered"], office.port("Slow")["waiting"]) == (MESSAGES, 0)
