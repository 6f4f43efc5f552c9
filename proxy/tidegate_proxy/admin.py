"""The admin port: probes and metrics. A separate thread serves it, so that load on the API cannot delay it."""

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from tidegate_contracts import metrics, proxy_process
from tidegate_service.exposition import Samples, family

from .config import LiveConfig
from .servers import ServerQueries
from .shared_state import SharedState
from .telemetry.meter import Meter, pieces
from .upstream.load_watch import MOST_REPORTED

PAUSE_SECONDS = 0.0005  # Between two pieces of the metrics.


def _family(name: str, samples: Samples | float) -> Metric:
    return family(metrics.PROXY[name], samples)


class MeterCollector(Collector):
    """Builds metrics at each scrape from plain numbers, so that counting a call costs next to nothing."""

    def __init__(self, shared: SharedState, config: LiveConfig) -> None:
        self._shared = shared
        self._config = config

    def collect(self) -> Iterator[Metric]:
        """Return every metric except those of `telemetry.meter.pieces`, which are too many."""
        shared, meter = self._shared, self._shared.meter
        yield _family("in_flight", shared.limiter.in_flight)
        yield _family("in_flight_limit", shared.limiter.limit)
        yield _family("waiting", shared.limiter.waiting)
        parts = {"callers": shared.memory.callers, "strangers": shared.memory.strangers}
        yield _family("held_bytes", ((name, part.held) for name, part in parts.items()))
        yield _family("held_limit_bytes", ((name, part.limit) for name, part in parts.items()))
        yield _family("cut", shared.memory.cut.items())
        pools = self._config.routes.pools.values()
        meter.forget_replicas({each.name for pool in pools for each in list(pool.replicas)})
        yield _family("problems", meter.problems.items())
        yield _family("model_problems", meter.model_problems.items())
        yield _family("models_unnamed", meter.count_unnamed(self._config.routes.find))
        yield _family("tokens", meter.tokens.items())
        callers = (((*key[:3], str(key[3])), number) for key, number in list(meter.callers.items()))
        yield _family("caller_requests", callers)
        yield _family("upstream_errors", meter.upstream_errors.items())
        yield _family("lease_acquires", meter.lease_acquires.items())
        yield _family("lease_spills", meter.lease_spills.items())
        yield from self._pools()
        if shared.tracer is not None:
            yield _family("spans", shared.tracer.counts.items())
        files = self._config.watched
        yield _family("config_generation", ((each.name, each.generation) for each in files))
        yield _family("config_failures", ((each.name, each.failures) for each in files))
        yield _family("config_good", ((each.name, int(not each.last_error)) for each in files))
        yield _family("config_edited", ((each.name, int(each.is_edited)) for each in files))
        ends = self._config.certificate_expires
        yield _family("certificate_expires_timestamp_seconds", () if ends is None else ends)
        yield _family("issuer_keys_trusted_seconds", self._config.authorizer.keys_trusted().items())

    def _pools(self) -> Iterator[Metric]:
        of_waits = metrics.PROXY["lease_wait_seconds"]
        waits = HistogramMetricFamily(of_waits.name, of_waits.text, labels=of_waits.labels)
        for where, count in list(self._shared.meter.lease_waits.items()):
            waits.add_metric(where, count.cumulative(), sum_value=count.seconds)
        yield waits
        now = monotonic()
        routes = self._config.routes
        pools = routes.pools
        replicas = [((*key, each.name), each) for key, pool in pools.items() for each in list(pool.replicas)]
        yield _family("replica_in_flight", ((names, each.in_flight) for names, each in replicas))
        yield _family("breaker", (((*names, each.breaker.state(now)), 1) for names, each in replicas))
        called = [(key, pool) for key, pool in pools.items() if pool in routes.called and not pool.config.empty]
        yield _family("pool_ready", ((key, int(not pool.why_not_ready())) for key, pool in called))
        yield from self._watched()
        leases = [(key, pool.leases) for key, pool in pools.items() if pool.leases is not None]
        held = (((*key, name), number) for key, each in leases for name, number in each.held(now).items())
        yield _family("leases", held)
        silent = (((*key, name), int(is_so)) for key, each in leases for name, is_so in each.silent().items())
        yield _family("policy_silent", silent)
        yield _family("lease_waiting", ((key, at.waiting) for key, at in leases))

    def _watched(self) -> Iterator[Metric]:
        """Return the failed loads of replicas that load their models by themselves."""
        pools = self._config.routes.pools
        watches = [((*key, at.name), watch) for key, pool in pools.items() for at, watch in list(pool.watches.items())]
        yield _family("index_seen", ((at, int(watch.seen)) for at, watch in watches))
        yield _family("load_failures", ((at, len(watch.failed)) for at, watch in watches))
        shown = [(at, each) for at, watch in watches for each in list(watch.failed.items())[:MOST_REPORTED]]
        since = (((*at, *key), failure.since) for at, (key, failure) in shown)
        yield _family("load_failed_timestamp_seconds", since)


def make_admin(ready: Callable[[], str], servers: ServerQueries, registry: CollectorRegistry, meter: Meter) -> FastAPI:
    """Return the application. `ready` returns why the proxy is not ready, or nothing. `meter` counts calls."""
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
        why = servers.why_not_ready(server)
        if why is None:
            return PlainTextResponse("the routing table has no such server\n", 404)
        lines = "\n".join([why or "ready", *servers.not_loaded(server)])
        return PlainTextResponse(f"{lines}\n", 503 if why else 200)

    @app.get(proxy_process.METRICS_PATH)
    async def counts() -> Response:
        # Thousands of models have very many lines. Probes, and calls on the other thread, run in between.
        text = [await asyncio.to_thread(generate_latest, registry)]
        for piece in pieces(meter):
            text.append(piece.encode())
            await asyncio.sleep(PAUSE_SECONDS)
        return Response(b"".join(text), media_type=CONTENT_TYPE_LATEST)

    return app
