"""Lets the first web request be answered sooner: what it needs is loaded while PostgreSQL starts."""

from __future__ import annotations

import logging
from threading import Thread

from crossdock.messagebox.deployment import Deployment
from crossdock.receive.location import ReceiveLocation

logger = logging.getLogger(__name__)


def prepare_express_lane(deployment: Deployment) -> None:
    """In a thread beside everything else, and only if partners send to one of the locations."""
    Thread(target=_prepare, args=[deployment], name="prepare express lane", daemon=True).start()


def _prepare(deployment: Deployment) -> None:
    """It only saves time: what fails here fails again, and is told, where it is needed."""
    try:
        if any(ReceiveLocation.from_definition(0, 0, each.definition).is_pushed for each in deployment.locations):
            from crossdock.subscription.index.prepare import prepare_matching  # numba

            prepare_matching()
    except Exception as error:
        logger.debug("The express lane is not prepared: %s", error)
