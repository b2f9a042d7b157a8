"""Works out the routing failure reports of messages that nobody wanted: their nearest misses."""

from __future__ import annotations

from dataclasses import asdict

from crossdock.message.property import PropertyRegistry
from crossdock.messagebox.agent import Agent
from crossdock.subscription.nearest import Catalog
from crossdock.subscription.router import Epoch

_BATCH = 200


class ReportRoutingFailures:
    """Keeps the filters of an epoch; a report that two processes work out at once is kept once."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._epoch: Epoch | None = None
        self._catalog: Catalog | None = None

    def run_once(self) -> int:
        """Gives how many messages were reported on."""
        failures = self._agent.suspended.unreported(limit=_BATCH)
        if not failures:
            return 0
        catalog = self._current_catalog()
        self._agent.suspended.report_failures(
            {
                message: [] if context is None else [asdict(miss) for miss in catalog.nearest_misses(context.promoted)]
                for message, context in failures
            }
        )
        return len(failures)

    def _current_catalog(self) -> Catalog:
        router = self._agent.router()
        if self._catalog is None or router.epoch != self._epoch:
            names = {number: each.service for number, each in router.subscriptions.items()}
            filters = [(names[number], filter_) for number, filter_ in self._agent.filters().items() if number in names]
            types = PropertyRegistry(self._agent.configuration.properties())
            services = {each.service_id: each.service for each in router.subscriptions.values()}
            correlations = [
                (
                    services[service],
                    name,
                    router.correlations[number].properties,
                    router.correlations[number].types or (),
                )
                for (service, name), number in router.latest_correlations.items()
                if service in services
            ]
            self._catalog = Catalog(
                filters,
                types,
                case_sensitive=router.case_sensitive,
                correlations=correlations,
                masked=self._agent.configuration.personal(),
            )
            self._epoch = router.epoch
        return self._catalog
