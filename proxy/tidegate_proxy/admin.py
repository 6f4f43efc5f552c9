"""The admin port: probes and metrics. It has a thread of its own, so that load on the API cannot delay them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
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

PAUSE_SECONDS = 0.0005  # Between two pieces of the metrics.
_POOL = ("server", "pool")
_REPLICA = (*_POOL, "replica")
_Samples = Iterable[tuple[str | Sequence[str], float]]
_Family = GaugeMetricFamily | CounterMetricFamily


class MeterCollector(Collector):
    """Made at each scrape from plain numbers, so that counting a call costs next to nothing."""

    def __init__(self, shared: SharedState, config: LiveConfig) -> None:
        self._shared = shared
        self._config = config

    def collect(self) -> Iterator[Metric]:
        """Return every metric but those of `telemetry.meter.pieces`, which are too many for this."""
        shared, meter = self._shared, self._shared.meter
        yield GaugeMetricFamily("tidegate_proxy_in_flight", "Calls that are worked on.", shared.limiter.in_flight)
        yield GaugeMetricFamily("tidegate_proxy_waiting", "Calls that wait for a place.", shared.limiter.waiting)
        yield _counter("problems", "Calls the proxy ended itself.", ("type",), meter.problems.items())
        yield _counter("upstream_errors", "Calls without an answer.", ("server", "how"), meter.upstream_errors.items())
        outcomes = (*_POOL, "outcome")
        yield _counter("lease_acquires", "Answers to requests for leases.", outcomes, meter.lease_acquires.items())
        spills = meter.lease_spills.items()
        yield _counter("lease_spills", "Calls that asked another replica for a lease.", _POOL, spills)
        yield from self._pools()
        copies = ("server", "model", "outcome")
        yield _counter("mirrored", "Copies of requests for a candidate version.", copies, meter.mirrored.items())
        yield GaugeMetricFamily("tidegate_proxy_mirrors_in_flight", "Copies under way.", shared.mirror.in_flight)
        if shared.tracer is not None:
            yield _counter("spans", "Spans of sampled calls.", ("outcome",), shared.tracer.counts.items())
        files = self._config.watched
        taken = ((each.name, each.generation) for each in files)
        yield _gauges("config_generation", "Times a file was taken over.", ("file",), taken)
        refused = ((each.name, each.failures) for each in files)
        yield _counter("config_failures", "Times a file was refused.", ("file",), refused)
        good = ((each.name, int(not each.last_error)) for each in files)
        yield _gauges("config_good", "1 while the file as it lies there is in use.", ("file",), good)

    def _pools(self) -> Iterator[Metric]:
        waits = HistogramMetricFamily(
            "tidegate_proxy_lease_wait_seconds", "Seconds that calls waited for a lease.", labels=_POOL
        )
        for where, count in list(self._shared.meter.lease_waits.items()):
            waits.add_metric(where, count.cumulative(), sum_value=count.seconds)
        yield waits
        now = monotonic()
        pools = self._config.routes.pools
        replicas = [((*key, each.name), each) for key, pool in pools.items() for each in list(pool.replicas)]
        flight = ((names, each.in_flight) for names, each in replicas)
        yield _gauges("replica_in_flight", "Calls at a replica.", _REPLICA, flight)
        states = (((*names, each.breaker.state(now)), 1) for names, each in replicas)
        yield _gauges("breaker", "State of a replica's circuit breaker.", (*_REPLICA, "state"), states)
        leases = [(key, pool.leases) for key, pool in pools.items() if pool.leases is not None]
        held = (((*key, name), number) for key, each in leases for name, number in each.held(now).items())
        yield _gauges("leases", "Leases that are held.", _REPLICA, held)
        silent = (((*key, name), int(is_so)) for key, each in leases for name, is_so in each.silent().items())
        yield _gauges("policy_silent", "1 while an eviction policy gives no answer.", _REPLICA, silent)
        yield _gauges("lease_waiting", "Calls that wait for a lease.", _POOL, ((key, at.waiting) for key, at in leases))


def _metric(family: type[_Family], name: str, text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    made = family(f"tidegate_proxy_{name}", text, labels=labels)
    for said, value in list(samples):  # as they are now: calls go on counting on the other thread
        made.add_metric([said] if isinstance(said, str) else said, value)
    return made


_gauges, _counter = partial(_metric, GaugeMetricFamily), partial(_metric, CounterMetricFamily)


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
