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
from .upstream.load_watch import MOST_TOLD

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
        parts = {"callers": shared.memory.callers, "strangers": shared.memory.strangers}
        held = ((name, part.held) for name, part in parts.items())
        yield _gauges("held_bytes", "Bytes that callers make the proxy hold.", ("of",), held)
        limits = ((name, part.limit) for name, part in parts.items())
        yield _gauges("held_limit_bytes", "Bytes that they may make it hold.", ("of",), limits)
        yield _counter("cut", "What was ended so that others go on.", ("of",), shared.memory.cut.items())
        pools = self._config.routes.pools.values()
        meter.forget_replicas({each.name for pool in pools for each in list(pool.replicas)})
        why = ("type", "reason", *_REPLICA)
        yield _counter("problems", "Calls the proxy ended itself, and why.", why, meter.problems.items())
        of_model = ("server", "model", "type", "reason")
        told = meter.model_problems.items()
        yield _counter("model_problems", "The same by model, where it is known.", of_model, told)
        unnamed = meter.count_unnamed(self._config.routes.find)
        yield GaugeMetricFamily("tidegate_proxy_models_unnamed", "Models that are counted together, as `*`.", unnamed)
        who = ("principal", "source", "protocol", "status")
        callers = (((*key[:3], str(key[3])), number) for key, number in list(meter.callers.items()))
        yield _counter("caller_requests", "Calls that ended, by caller.", who, callers)
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
        ends = self._config.certificate_expires
        name = "certificate_expires_timestamp_seconds"
        yield _gauges(name, "Unix time at which the certificate ends.", (), [] if ends is None else [((), ends)])
        trusted = self._config.authorizer.keys_trusted().items()
        text = "Seconds that an issuer's keys are trusted yet."
        yield _gauges("issuer_keys_trusted_seconds", text, ("issuer",), trusted)
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
        routes = self._config.routes
        pools = routes.pools
        replicas = [((*key, each.name), each) for key, pool in pools.items() for each in list(pool.replicas)]
        flight = ((names, each.in_flight) for names, each in replicas)
        yield _gauges("replica_in_flight", "Calls at a replica.", _REPLICA, flight)
        states = (((*names, each.breaker.state(now)), 1) for names, each in replicas)
        yield _gauges("breaker", "State of a replica's circuit breaker.", (*_REPLICA, "state"), states)
        called = [(key, pool) for key, pool in pools.items() if pool in routes.called and not pool.config.empty]
        ready = ((key, int(not pool.why_not_ready())) for key, pool in called)
        yield _gauges("pool_ready", "1 while calls of a pool find a replica.", _POOL, ready)
        yield from self._watched()
        leases = [(key, pool.leases) for key, pool in pools.items() if pool.leases is not None]
        held = (((*key, name), number) for key, each in leases for name, number in each.held(now).items())
        yield _gauges("leases", "Leases that are held.", _REPLICA, held)
        silent = (((*key, name), int(is_so)) for key, each in leases for name, is_so in each.silent().items())
        yield _gauges("policy_silent", "1 while an eviction policy gives no answer.", _REPLICA, silent)
        yield _gauges("lease_waiting", "Calls that wait for a lease.", _POOL, ((key, at.waiting) for key, at in leases))

    def _watched(self) -> Iterator[Metric]:
        """Return what replicas that load their models by themselves could not load."""
        pools = self._config.routes.pools
        watches = [((*key, at.name), watch) for key, pool in pools.items() for at, watch in list(pool.watches.items())]
        seen = ((at, int(watch.seen)) for at, watch in watches)
        yield _gauges("index_seen", "1 while a replica says what it could not load.", _REPLICA, seen)
        number = ((at, len(watch.failed)) for at, watch in watches)
        yield _gauges("load_failures", "Versions that a replica could not load.", _REPLICA, number)
        told = [(at, each) for at, watch in watches for each in list(watch.failed.items())[:MOST_TOLD]]
        since = (((*at, *key), failure.since) for at, (key, failure) in told)
        labels = (*_REPLICA, "model", "version")
        yield _gauges("load_failed_timestamp_seconds", "Unix time since when a version is not loaded.", labels, since)


def _metric(family: type[_Family], name: str, text: str, labels: Sequence[str], samples: _Samples) -> Metric:
    made = family(f"tidegate_proxy_{name}", text, labels=labels)
    for said, value in list(samples):  # as they are now: calls go on counting on the other thread
        made.add_metric([said] if isinstance(said, str) else said, value)
    return made


_gauges, _counter = partial(_metric, GaugeMetricFamily), partial(_metric, CounterMetricFamily)


def make_admin(
    ready: Callable[[], str],
    server_ready: Callable[[str], str | None],
    not_loaded: Callable[[str], list[str]],
    registry: CollectorRegistry,
    meter: Meter,
) -> FastAPI:
    """Return the application. `ready` says why the proxy is not, or nothing; `server_ready` the same of a server, and
    None of one that nobody knows; `not_loaded` what a server could not load; `meter` has the counts of calls.
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
        said = "\n".join([why or "ready", *not_loaded(server)])
        return PlainTextResponse(f"{said}\n", 503 if why else 200)

    @app.get(proxy_process.METRICS_PATH)
    async def metrics() -> Response:
        # Thousands of models have a great many lines: probes, and calls on the other thread, have their turn meanwhile.
        said = [await asyncio.to_thread(generate_latest, registry)]
        for piece in pieces(meter):
            said.append(piece.encode())
            await asyncio.sleep(PAUSE_SECONDS)
        return Response(b"".join(said), media_type=CONTENT_TYPE_LATEST)

    return app
