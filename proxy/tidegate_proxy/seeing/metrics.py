"""The counts, as Prometheus reads them."""

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .meter import SECONDS

if TYPE_CHECKING:
    from ..serve import Proxy


class MeterCollector(Collector):
    """Made at each scrape from plain numbers, so that counting a call costs next to nothing."""

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy

    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield from self._calls()
        yield from self._refusals()
        yield from self._upstream()
        yield from self._copies()
        yield from self._spans()
        yield from self._tables()

    def _calls(self) -> Iterator[Metric]:
        labels = ["server", "model", "protocol"]
        requests = CounterMetricFamily("tidegate_proxy_requests", "Calls that ended.", labels=[*labels, "status"])
        seconds = HistogramMetricFamily("tidegate_proxy_request_seconds", "Seconds that calls took.", labels=labels)
        received = CounterMetricFamily("tidegate_proxy_request_bytes", "Bytes of request bodies.", labels=labels)
        sent = CounterMetricFamily("tidegate_proxy_response_bytes", "Bytes of answers' bodies.", labels=labels)
        for key, count in list(self._proxy.meter.calls.items()):
            for status, number in list(count.statuses.items()):
                requests.add_metric([*key, str(status)], number)
            total, buckets = 0, []
            for bound, number in zip([*map(str, SECONDS), "+Inf"], count.buckets, strict=True):
                total += number
                buckets.append((bound, total))
            seconds.add_metric(key, buckets, sum_value=count.seconds)
            received.add_metric(key, count.bytes_in)
            sent.add_metric(key, count.bytes_out)
        yield from (requests, seconds, received, sent)
        places = self._proxy.hall.places
        yield GaugeMetricFamily("tidegate_proxy_in_flight", "Calls that are worked on.", places.taken)
        yield GaugeMetricFamily("tidegate_proxy_waiting", "Calls that wait for a place.", places.waiting)

    def _refusals(self) -> Iterator[Metric]:
        problems = CounterMetricFamily("tidegate_proxy_problems", "Calls the proxy ended itself.", labels=["type"])
        for word, number in list(self._proxy.meter.problems.items()):
            problems.add_metric([word], number)
        yield problems

    def _upstream(self) -> Iterator[Metric]:
        errors = CounterMetricFamily(
            "tidegate_proxy_upstream_errors", "Calls without an answer.", labels=["server", "how"]
        )
        for key, number in list(self._proxy.meter.upstream_errors.items()):
            errors.add_metric(key, number)
        yield errors
        labels = ["server", "pool", "replica"]
        flight = GaugeMetricFamily("tidegate_proxy_replica_in_flight", "Calls at a replica.", labels=labels)
        breaker = GaugeMetricFamily(
            "tidegate_proxy_breaker", "State of a replica's circuit breaker.", labels=[*labels, "state"]
        )
        now = monotonic()
        for (server, pool), each in self._proxy.following.routes.pools.items():
            for replica in list(each.replicas):
                names = [server, pool, replica.name]
                flight.add_metric(names, replica.in_flight)
                breaker.add_metric([*names, replica.breaker.state(now)], 1)
        yield from (flight, breaker)

    def _copies(self) -> Iterator[Metric]:
        copies = CounterMetricFamily(
            "tidegate_proxy_mirrored",
            "Copies of requests for a candidate version.",
            labels=["server", "model", "outcome"],
        )
        for key, number in list(self._proxy.meter.mirrored.items()):
            copies.add_metric(key, number)
        yield copies
        under_way = self._proxy.hall.copies.in_flight
        yield GaugeMetricFamily("tidegate_proxy_mirrors_in_flight", "Copies under way.", under_way)

    def _spans(self) -> Iterator[Metric]:
        if (tracer := self._proxy.hall.tracer) is not None:
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
        for each in self._proxy.following.watched:
            generation.add_metric([each.name], each.generation)
            failures.add_metric([each.name], each.failures)
            good.add_metric([each.name], 0 if each.last_error else 1)
        yield from (generation, failures, good)
