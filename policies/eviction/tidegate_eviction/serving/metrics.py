"""The counts and the slice, as Prometheus reads them.

A model's name is a label only of models that the repository has, and of a bounded number of them.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from tidegate_service.histogram import Histogram

from ..states import State
from ..triton.memory import Source
from .view import View

NAMED_MODELS = 1000
"""So many models, by name, have metrics of their own; all of them count in the sums."""


class ViewCollector(Collector):
    """Made for each scrape."""

    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield from self._flow()
        yield from self._bytes()
        yield from self._models()
        yield from self._health()

    def _flow(self) -> Iterator[Metric]:
        counts = self._view.counts
        yield _by(
            "acquires", "Leases asked for, by outcome: hit where the model was resident.", "outcome", counts.acquires
        )
        yield _total("requests", "Requests that went to resident models, as their holders say.", counts.requests)
        yield _histogram("wait_seconds", "Seconds that callers waited for a lease.", counts.waits)
        yield _histogram("load_seconds", "Seconds that loads took, of those that went well.", counts.loads)
        yield _total("load_failures", "Loads that failed.", counts.load_failures)
        yield _by("evictions", "Unloads begun, by reason.", "reason", counts.evictions)
        yield _total("unload_failures", "Unloads that Triton did not do.", counts.unload_failures)
        yield _histogram("freeing_seconds", "Seconds until memory came back after an unload.", counts.frees)
        yield _total("overruns", "Times that more was loaded than there is room for.", counts.overruns)
        yield _total(
            "recycles", "Times that Triton was to be restarted, for memory that did not come back.", counts.recycles
        )
        yield _total("renewals", "Renewals of leases.", counts.renewals)
        yield _total("releases", "Leases given back.", counts.releases)
        yield _gauge("leases", "Leases that live.", self._view.leases)
        yield _gauge(
            "waiters", "Callers that wait for a lease.", sum(each.waiters for each in self._view.listing.models)
        )

    def _bytes(self) -> Iterator[Metric]:
        listing, reading = self._view.listing, self._view.reading
        room = GaugeMetricFamily("tidegate_eviction_bytes", "Bytes of the slice, by what is there.", labels=["kind"])
        for kind in ("capacity", "resident", "loading", "freeing", "leaked", "free"):
            room.add_metric([kind], getattr(listing, f"{kind}_bytes"))
        yield room
        source = GaugeMetricFamily(
            "tidegate_eviction_memory_source", "1 for where readings of memory come from.", labels=["source"]
        )
        for each in Source:
            source.add_metric([each.value], int(each is reading.source))
        yield source
        if reading.used_bytes is not None:
            yield _gauge("memory_used_bytes", "Memory in use, as it was read last.", reading.used_bytes)
        if reading.total_bytes is not None:
            yield _gauge("memory_total_bytes", "Memory of the slice, as it was read last.", reading.total_bytes)

    def _models(self) -> Iterator[Metric]:
        listing = self._view.listing
        found = Counter(each.state for each in listing.models)
        states = GaugeMetricFamily("tidegate_eviction_models", "Models in each state.", labels=["state"])
        for state in State:
            states.add_metric([state.value], found[state.value])
        yield states
        state_of = GaugeMetricFamily(
            "tidegate_eviction_model_state", "1 for the state that a model is in.", labels=["model", "state"]
        )
        footprint = GaugeMetricFamily(
            "tidegate_eviction_model_footprint_bytes", "What a model takes, and how that is known.",
            labels=["model", "from"],
        )  # fmt: skip
        for each in sorted(listing.models, key=lambda each: each.model)[:NAMED_MODELS]:
            state_of.add_metric([each.model, each.state], 1)
            if each.footprint_bytes is not None:
                footprint.add_metric([each.model, each.footprint_from], each.footprint_bytes)
        yield from (state_of, footprint)

    def _health(self) -> Iterator[Metric]:
        view = self._view
        yield _gauge("triton_up", "1 while there is a connection to Triton.", int(view.triton_is_up))
        yield _total("triton_losses", "Times that Triton ended.", view.counts.triton_losses)
        yield _gauge("settings_generation", "Times the settings were taken over.", view.settings_generation)
        yield _total("settings_failures", "Times the settings were refused.", view.settings_failures)
        yield _gauge(
            "settings_good", "1 while the settings file as it lies there is in use.", int(not view.settings_error)
        )


def render(view: View) -> bytes:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(ViewCollector(view))
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tidegate_eviction_{name}", text, value)


def _total(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"tidegate_eviction_{name}", text, value)


def _by(name: str, text: str, label: str, values: Counter[str]) -> Metric:
    family = CounterMetricFamily(f"tidegate_eviction_{name}", text, labels=[label])
    for word, number in list(values.items()):
        family.add_metric([word], number)
    return family


def _histogram(name: str, text: str, values: Histogram) -> Metric:
    return HistogramMetricFamily(
        f"tidegate_eviction_{name}", text, buckets=values.cumulative(), sum_value=values.seconds
    )
