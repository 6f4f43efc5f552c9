"""The admin port: probes and metrics. It has a thread of its own, so that load on the API cannot delay them."""

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from tidegate_contracts import proxy_process

from .config import LiveConfig
from .shared_state import SharedState
from .telemetry.meter import Meter, pieces


class MeterCollector(Collector):
    """Made at each scrape from plain numbers, so that counting a call costs next to nothing."""

    def __init__(self, shared: SharedState, config: LiveConfig) -> None:
        self._shared = shared
        self._config = config

    def collect(self) -> Iterator[Metric]:
        """Return every metric but those of `exposition`, which are too many for this."""
        yield from self._places()
        yield from self._refusals()
        yield from self._upstream()
        yield from self._leases()
        yield from self._copies()
        yield from self._spans()
        yield from self._tables()

    def _places(self) -> Iterator[Metric]:
        limiter = self._shared.limiter
        yield GaugeMetricFamily("tidegate_proxy_in_flight", "Calls that are worked on.", limiter.in_flight)
        yield GaugeMetricFamily("tidegate_proxy_waiting", "Calls that wait for a place.", limiter.waiting)

    def _refusals(self) -> Iterator[Metric]:
        problems = CounterMetricFamily("tidegate_proxy_problems", "Calls the proxy ended itself.", labels=["type"])
        for word, number in list(self._shared.meter.problems.items()):
            problems.add_metric([word], number)
        yield problems

    def _upstream(self) -> Iterator[Metric]:
        errors = CounterMetricFamily(
            "tidegate_proxy_upstream_errors", "Calls without an answer.", labels=["server", "how"]
        )
        for key, number in list(self._shared.meter.upstream_errors.items()):
            errors.add_metric(key, number)
        yield errors
        labels = ["server", "pool", "replica"]
        flight = GaugeMetricFamily("tidegate_proxy_replica_in_flight", "Calls at a replica.", labels=labels)
        breaker = GaugeMetricFamily(
            "tidegate_proxy_breaker", "State of a replica's circuit breaker.", labels=[*labels, "state"]
        )
        now = monotonic()
        for (server, pool), each in self._config.routes.pools.items():
            for replica in list(each.replicas):
                names = [server, pool, replica.name]
                flight.add_metric(names, replica.in_flight)
                breaker.add_metric([*names, replica.breaker.state(now)], 1)
        yield from (flight, breaker)

    def _leases(self) -> Iterator[Metric]:
        labels = ["server", "pool"]
        meter = self._shared.meter
        acquires = CounterMetricFamily(
            "tidegate_proxy_lease_acquires", "Answers to requests for leases.", labels=[*labels, "outcome"]
        )
        for key, number in list(meter.lease_acquires.items()):
            acquires.add_metric(key, number)
        waits = HistogramMetricFamily(
            "tidegate_proxy_lease_wait_seconds", "Seconds that calls waited for a lease.", labels=labels
        )
        for where, count in list(meter.lease_waits.items()):
            waits.add_metric(where, count.cumulative(), sum_value=count.seconds)
        spills = CounterMetricFamily(
            "tidegate_proxy_lease_spills", "Calls that asked another replica for a lease.", labels=labels
        )
        for where, number in list(meter.lease_spills.items()):
            spills.add_metric(where, number)
        yield from (acquires, waits, spills)
        held = GaugeMetricFamily("tidegate_proxy_leases", "Leases that are held.", labels=[*labels, "replica"])
        silent = GaugeMetricFamily(
            "tidegate_proxy_policy_silent", "1 while an eviction policy gives no answer.", labels=[*labels, "replica"]
        )
        waiting = GaugeMetricFamily("tidegate_proxy_lease_waiting", "Calls that wait for a lease.", labels=labels)
        now = monotonic()
        for (server, pool), each in self._config.routes.pools.items():
            if each.leases is not None:
                waiting.add_metric([server, pool], each.leases.waiting)
                for replica, number in each.leases.held(now).items():
                    held.add_metric([server, pool, replica], number)
                for replica, is_silent in each.leases.silent().items():
                    silent.add_metric([server, pool, replica], int(is_silent))
        yield from (held, silent, waiting)

    def _copies(self) -> Iterator[Metric]:
        copies = CounterMetricFamily(
            "tidegate_proxy_mirrored",
            "Copies of requests for a candidate version.",
            labels=["server", "model", "outcome"],
        )
        for key, number in list(self._shared.meter.mirrored.items()):
            copies.add_metric(key, number)
        yield copies
        under_way = self._shared.mirror.in_flight
        yield GaugeMetricFamily("tidegate_proxy_mirrors_in_flight", "Copies under way.", under_way)

    def _spans(self) -> Iterator[Metric]:
        if (tracer := self._shared.tracer) is not None:
            spans = CounterMetricFamily("tidegate_proxy_spans", "Spans of sampled calls.", labels=["outcome"])
            for outcome, number in tracer.counts.items():
                spans.add_metric([outcome], number)
            yield spans

    def _tables(self) -> Iterator[Metric]:
        generation = GaugeMetricFamily(
            "tidegate_proxy_config_generation", "Times a file was taken over.", labels=["file"]
        )
        failures = CounterMetricFamily("tidegate_proxy_config_failures", "Times a file was refused.", labels=["file"])
        good = GaugeMetricFamily(
            "tidegate_proxy_config_good", "1 while the file as it lies there is in use.", labels=["file"]
        )
        for each in self._config.watched:
            generation.add_metric([each.name], each.generation)
            failures.add_metric([each.name], each.failures)
            good.add_metric([each.name], 0 if each.last_error else 1)
        yield from (generation, failures, good)


PAUSE_SECONDS = 0.0005
"""Between two pieces of the metrics."""


def make_admin(
    ready: Callable[[], str], server_ready: Callable[[str], str | None], registry: CollectorRegistry, meter: Meter
) -> FastAPI:
    """Return the application. `ready` says why the proxy is not, or nothing; `server_ready` the same of a server, and
    None of one that nobody knows; `meter` has the counts of calls.
    """
    app = FastAPI(title="Tidegate inference proxy: probes and metrics", openapi_url=None)

    @app.get(proxy_process.LIVE_PATH)
    async def live() -> Response:
        return PlainTextResponse("ok\n")

    @app.get(proxy_process.READY_PATH)
    async def whole() -> Response:
        why = ready()
        return PlainTextResponse(f"{why or 'ready'}\n", 503 if why else 200)

    @app.get(f"{proxy_process.SERVER_READY_PATH}/{{server}}")
    async def one(server: str) -> Response:
        why = server_ready(server)
        if why is None:
            return PlainTextResponse("the routing table has no such server\n", 404)
        return PlainTextResponse(f"{why or 'ready'}\n", 503 if why else 200)

    @app.get(proxy_process.METRICS_PATH)
    async def metrics() -> Response:
        # Thousands of models have a great many lines: probes, and calls on the other thread, have their turn meanwhile.
        said = [await asyncio.to_thread(generate_latest, registry)]
        for piece in pieces(meter):
            said.append(piece.encode())
            await asyncio.sleep(PAUSE_SECONDS)
        return Response(b"".join(said), media_type=CONTENT_TYPE_LATEST)

    return app
