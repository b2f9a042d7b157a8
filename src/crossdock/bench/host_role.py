"""What the role of a host costs: the owner and a user of the host publish and deliver the same, in short turns.

The owner runs the statements themselves. The role runs functions of the MessageBox, which check what they are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from crossdock.messagebox.agent import Agent

_TURNS = 8
_USER, _PASSWORD = "crossdock_bench_host", "bench"


def beside_host_role(
    agent: Agent, host: int, measure: Callable[[Agent], tuple[float, float]], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Rates of publishing and delivering by the owner and by the role, and the medians of the paired ratios.

    `measure` publishes and delivers as the agent that it is given, and returns both rates.
    """
    with host_user(agent, host) as acting:
        measure(acting)  # the first turn of a connection plans its statements
        owner: list[tuple[float, float]] = []
        role: list[tuple[float, float]] = []
        for turn in range(_TURNS):
            progress(f"as the owner and as the role of a host, turn {turn + 1} of {_TURNS}")
            for who, rates in ((agent, owner), (acting, role)) if turn % 2 else ((acting, role), (agent, owner)):
                rates.append(measure(who))
    ratios = [(r[0] / o[0], r[1] / o[1]) for o, r in zip(owner, role, strict=True)]
    return {
        "owner_publish_per_s": round(median(each[0] for each in owner)),
        "host_role_publish_per_s": round(median(each[0] for each in role)),
        "host_role_publish_ratio": round(median(each[0] for each in ratios), 3),
        "owner_dequeue_per_s": round(median(each[1] for each in owner)),
        "host_role_dequeue_per_s": round(median(each[1] for each in role)),
        "host_role_dequeue_ratio": round(median(each[1] for each in ratios), 3),
        "host_role_publish_ratio_each": [round(each[0], 3) for each in ratios],
        "host_role_dequeue_ratio_each": [round(each[1], 3) for each in ratios],
    }


@contextmanager
def host_user(agent: Agent, host: int) -> Iterator[Agent]:
    """An agent that is connected as a user who has the role of a host, and nothing else."""
    agent.box.create_host_roles()
    role, user = sql.Identifier(agent.box.host_role(host)), sql.Identifier(_USER)
    with psycopg.connect(agent.database, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(user, sql.Literal(_PASSWORD)))
        try:
            connection.execute(sql.SQL("GRANT {} TO {}").format(role, user))
            with Agent(make_conninfo(agent.database, user=_USER, password=_PASSWORD), connections=12) as acting:
                yield acting
        finally:
            connection.execute(sql.SQL("DROP ROLE {}").format(user))
