"""Logs, counters and gauges of the policy. No label comes from callers, and the number of names is bounded."""

import logging
import re
from collections import Counter as Counting
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from time import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from pydantic.alias_generators import to_camel
from tidegate_contracts import lease, metrics
from tidegate_contracts.lease import State
from tidegate_service.exposition import Samples, family

from ..core import messages
from ..core.messages import ModelSpec
from ..staging.stager import StagingCounts
from ..triton.memory import MemoryReading, MemorySource
from .footprints import Footprints

NAMED_MODELS = 1000  # Models with metrics by name.
_TOTALS: Final = (
    "load_failures", "unload_failures", "overruns", "recycles", "policy_failures", "refused_messages", "triton_losses",
)  # fmt: skip
_LINES: dict[type, tuple[int, str, str]] = {
    messages.Loaded: (logging.INFO, "%s is loaded", ""),
    messages.LoadFailed: (logging.WARNING, "%s could not be loaded", "load_failures"),
    messages.Quarantined: (logging.ERROR, "%s is quarantined until it changes or the policy restarts", ""),
    messages.Allowed: (logging.INFO, "%s is no longer quarantined", ""),
    messages.Evicted: (logging.INFO, "%s is evicted", ""),
    messages.UnloadFailed: (logging.ERROR, "%s could not be unloaded", "unload_failures"),
    messages.Leaked: (logging.WARNING, "memory was not freed, or was freed late", ""),
    messages.Overrun: (logging.ERROR, "loaded models exceed the capacity", "overruns"),
    messages.PolicyFailed: (logging.ERROR, "the policy failed: the least recently used are evicted", "policy_failures"),
    messages.Recycling: (logging.ERROR, "the server will be restarted: no new leases", "recycles"),
}
"""The level and text of each event's log line, and its counter, if any. The line also has the event's fields."""
log = logging.getLogger("tidegate_eviction.events")


disable_created_metrics()  # type: ignore[no-untyped-call]


class Counts:
    """Counters and histograms of one eviction policy, for Prometheus."""

    def __init__(self, most: int = NAMED_MODELS) -> None:
        self.registry = made = CollectorRegistry()
        self.most = most  # The number of models counted by name. The others are counted together.

        def counter(word: str) -> Counter:
            of = metrics.EVICTION[word]
            return Counter(of.name, of.text, of.labels, registry=made)

        self.totals = {name: counter(name) for name in _TOTALS}
        self.acquires = counter("acquires")
        """Outcomes: hit (resident), loaded (after a wait), the refusals' names, and gone (disconnected while
        waiting)."""
        self.evictions = counter("evictions")
        self.busy = counter("busy")
        self.by_model = {
            name: counter(f"model_{name}") for name in ("loads", "load_failures", "evictions", "evicted_others")
        }
        of = metrics.EVICTION["load_seconds"]
        self.load_seconds = Histogram(of.name, of.text, registry=made, buckets=metrics.SECONDS["loads"])
        self._named: set[str] = set()

    def count(self, what: str, model: str, *labels: str) -> None:
        """Count an event of a model, by name if it is one of the first."""
        if model not in self._named and len(self._named) < self.most:
            self._named.add(model)
        self.by_model[what].labels(model if model in self._named else metrics.OTHERS, *labels).inc()

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget the counters of models that no longer exist, so that new models can be counted by name."""
        if gone := set(filter(is_gone, self._named)):
            self._named -= gone
            for counter in self.by_model.values():
                for sample in [each for metric in counter.collect() for each in metric.samples]:
                    if sample.labels["model"] in gone:
                        counter.remove(*sample.labels.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy at one moment."""

    listing: lease.Listing
    counts: Counts = field(default_factory=Counts)
    reading: MemoryReading = field(default_factory=MemoryReading)
    server_is_up: bool = True
    keys_known: bool = True
    leases: int = 0
    settings_error: str = ""
    load_seconds: Mapping[str, float] = field(default_factory=dict)  # Seconds of the last load of each model.
    staging: StagingCounts | None = None  # None: no staging.
    taken: float = field(default_factory=time)  # Unix time.


@dataclass(frozen=True)
class SnapshotCollector(Collector):
    """Returns the gauges of one snapshot, for one scrape."""

    snapshot: Snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot
        listing, reading = snapshot.listing, snapshot.reading
        yield from _staged(snapshot.staging)
        for name, value in (
            ("memory_used_bytes", reading.used_bytes),
            ("leases", snapshot.leases),
            ("waiters", sum(each.waiters for each in listing.models)),
            ("triton_up", int(snapshot.server_is_up)),
            ("keys_known", int(snapshot.keys_known)),
            ("settings_good", int(not snapshot.settings_error)),
        ):
            if value is not None:
                yield _family(name, value)
        kinds = ("capacity", "resident", "loading", "freeing", "leaked", "free")
        yield _family("bytes", {(kind,): getattr(listing, f"{kind}_bytes") for kind in kinds})
        yield _family("memory_source", {(source,): source == reading.source for source in MemorySource})
        found = Counting(each.state for each in listing.models)
        yield _family("models", {(state,): found[state] for state in State})
        named = sorted(listing.models, key=lambda each: each.model)[: snapshot.counts.most]
        yield _family("model_state", {(each.model, each.state): 1 for each in named})
        sizes = {
            (each.model, each.footprint_from): each.footprint_bytes
            for each in named
            if each.footprint_bytes is not None
        }
        yield _family("model_footprint_bytes", sizes)
        yield _family("model_leases", {(each.model,): len(each.leases) for each in named if each.leases})
        took = snapshot.load_seconds
        yield _family("model_load_seconds", {(each.model,): took[each.model] for each in named if each.model in took})
        since = {
            (each.model,): snapshot.taken - each.state_seconds
            for each in named
            if each.state == State.QUARANTINED and each.state_seconds is not None
        }
        yield _family("model_quarantined_timestamp_seconds", since)


def _staged(near: StagingCounts | None) -> Iterator[Metric]:
    """Yield the metrics of staging, without samples if it is off."""
    loads = {} if near is None else {("near",): near.found, ("copied",): near.copied, ("far",): near.passed}
    yield _family("staging_loads", loads)
    yield _family("staging_copied_bytes", {} if near is None else near.bytes)
    yield _family("staging_bytes", {} if near is None else {("used",): near.used_bytes, ("size",): near.size_bytes})


def _family(name: str, samples: Samples | float) -> Metric:
    return family(metrics.EVICTION[name], samples)


def render(snapshot: Snapshot) -> bytes:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(snapshot.counts.registry) + generate_latest(SnapshotCollector(snapshot))


def observe(event: messages.Event, counts: Counts, footprints: Footprints, specs: Mapping[str, ModelSpec]) -> None:
    """Log and count an event, and record its measured footprints."""
    level, text, counted = _LINES[type(event)]
    record = {to_camel(field.name): getattr(event, field.name) for field in fields(event)}
    name = getattr(event, "model", "")
    record["event"] = re.sub(r"(?<!^)(?=[A-Z])", "-", type(event).__name__).lower()
    log.log(level, text, *([name] if "%s" in text else []), extra={"data": record})
    match event:
        case messages.Loaded():
            counts.load_seconds.observe(event.seconds)
            counts.count("loads", name)
            for each, size in {name: None, **event.measured}.items():
                if (spec := specs.get(each)) is not None:
                    near = event.seconds - event.copied_seconds
                    footprints.learn(each, spec.stamp, size, near if each == name else 0.0)
        case messages.Evicted():
            counts.evictions.labels(event.reason).inc()
            counts.count("evictions", name, event.reason)
            if event.wanted_by:
                counts.count("evicted_others", event.wanted_by)
        case messages.LoadFailed():
            counts.count("load_failures", name)
    if counted:
        counts.totals[counted].inc()
