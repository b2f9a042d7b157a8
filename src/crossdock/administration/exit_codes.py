"""What the exit code of a command says."""

from __future__ import annotations

from collections.abc import Mapping

EXIT_CODES: Mapping[int, str] = {
    0: "done; for `run --until-idle`: nothing is suspended, unrouted or waiting",
    1: "something Crossdock stands on does not work, an unexpected error, or `lint` has findings",
    2: "wrong usage, the application is refused, or a plan does not hold any more",
    3: "`run --until-idle`: something is suspended, unrouted or waiting; `publish`: a message is unrouted or suspended",
}
