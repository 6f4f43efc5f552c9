"""What is counted and logged of events, and how Prometheus reads it: no label is a caller's word, names are bounded."""

import logging
import re
from collections import Counter as Counting
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, fields
from time import time
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic.alias_generators import to_camel
from tidegate_contracts import lease
from tidegate_contracts.lease import State

from ..core import messages
from ..core.messages import ModelSpec
from ..server import MemoryReading
from ..staging.stager import StagingCounts
from .footprints import Footprints, Quarantine

PREFIX = "tidegate_eviction_"
NAMED_MODELS = 1000  # So many models have metrics of their own, by name, where nobody says otherwise.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
TOTALS: Final = {
    "requests": "Requests that went to resident models, as their holders say.",
    "load_failures": "Loads that failed.",
    "unload_failures": "Unloads that the server did not do.",
    "overruns": "Times that more was loaded than there is room for.",
    "margins_yielded": "First loads that began with less than their margin: all that could have gone for it is in use.",
    "recycles": "Times that the server was to be restarted, for memory that did not come back.",
    "policy_failures": "Times that a policy of one's own gave no answer that can be used.",
    "renewals": "Renewals of leases.",
    "releases": "Leases given back.",
    "triton_losses": "Times that the server ended.",
}
HISTOGRAMS: Final = {
    "wait_seconds": "Seconds that callers waited for a lease.",
    "load_seconds": "Seconds that loads took, of those that went well.",
    "freeing_seconds": "Seconds until memory came back after an unload.",
}
BY_MODEL: Final = {
    "loads": ("Loads that went well.", ["model"]),
    "load_failures": ("Loads that failed.", ["model"]),
    "evictions": ("Unloads begun, by reason.", ["model", "reason"]),
    "evicted_others": ("Models that were unloaded to make room for this one.", ["model"]),
}
"""What is counted of models by name."""
OTHERS: Final = "*"  # Label of all models that have no series of their own; none is called so.
_LINES: dict[type, tuple[int, str, str]] = {
    messages.LoadBegan: (logging.DEBUG, "%s is being loaded", ""),
    messages.MarginYielded: (logging.INFO, "%s begins its first load without its margin", "margins_yielded"),
    messages.Loaded: (logging.INFO, "%s is loaded", ""),
    messages.LoadFailed: (logging.WARNING, "%s could not be loaded", "load_failures"),
    messages.Quarantined: (logging.ERROR, "%s is not loaded any more until it changes, or is released by hand", ""),
    messages.Allowed: (logging.INFO, "%s may be loaded again", ""),
    messages.Evicted: (logging.INFO, "%s is evicted", ""),
    messages.UnloadFailed: (logging.ERROR, "%s could not be unloaded", "unload_failures"),
    messages.Freed: (logging.DEBUG, "the room of %s is free", ""),
    messages.Leaked: (logging.WARNING, "memory did not come back, or came back late", ""),
    messages.Overrun: (logging.ERROR, "more is loaded than there is room for", "overruns"),
    messages.PolicyFailed: (logging.ERROR, "the policy failed: the least recently used go instead", "policy_failures"),
    messages.Recycling: (logging.ERROR, "the server is to be restarted: no new leases", "recycles"),
}
"""Level and text of each event's line, which has the event's fields, too; and which total counts it, if any."""
log = logging.getLogger("tidegate_eviction.events")


disable_created_metrics()  # type: ignore[no-untyped-call]


class Counts:
    """Counters and histograms of one eviction policy, for Prometheus."""

    def __init__(self) -> None:
        self.registry = made = CollectorRegistry()
        self.totals = {name: Counter(PREFIX + name, text, registry=made) for name, text in TOTALS.items()}
        text = "Leases asked for, by outcome: hit where the model was resident."
        self.acquires = Counter(f"{PREFIX}acquires", text, ["outcome"], registry=made)
        """Outcomes: hit (resident), loaded (waited for), the refusals' own words; gone: hung up while waiting."""
        self.evictions = Counter(f"{PREFIX}evictions", "Unloads begun, by reason.", ["reason"], registry=made)
        self.busy = Counter(f"{PREFIX}busy", "Leases not to be had just then, by why.", ["reason"], registry=made)
        self.by_model = {
            name: Counter(f"{PREFIX}model_{name}", text, labels, registry=made)
            for name, (text, labels) in BY_MODEL.items()
        }
        self._named: set[str] = set()
        self.histograms = {
            name: Histogram(PREFIX + name, text, registry=made, buckets=SECONDS) for name, text in HISTOGRAMS.items()
        }

    def count(self, what: str, model: str, most: int, *labels: str) -> None:
        """Count what happened to a model, by its name where that is one of the first `most`."""
        if model not in self._named and len(self._named) < most:
            self._named.add(model)
        self.by_model[what].labels(model if model in self._named else OTHERS, *labels).inc()

    def keep(self, models: Set[str]) -> None:
        """Forget the names of all other models, and what was counted of them: models that are new may have names."""
        if gone := self._named - models:
            self._named -= gone
            for counter in self.by_model.values():
                for sample in [each for metric in counter.collect() for each in metric.samples]:
                    if sample.labels["model"] in gone:
                        counter.remove(*sample.labels.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A policy as it is at one instant: what people and Prometheus are shown."""

    listing: lease.Listing
    counts: Counts = field(default_factory=Counts)
    reading: MemoryReading = field(default_factory=MemoryReading)
    memory_sources: tuple[str, ...] = ()
    server_is_up: bool = True
    leases: int = 0
    named_models: int = NAMED_MODELS
    settings_generation: int = 1
    settings_failures: int = 0
    settings_error: str = ""
    load_seconds: Mapping[str, float] = field(default_factory=dict)  # Of the last load of each model that had one.
    staging: StagingCounts | None = None  # None: files are not staged.
    taken: float = field(default_factory=time)  # Unix time.


@dataclass(frozen=True)
class SnapshotCollector(Collector):
    """Returns the gauges of one snapshot; made for each scrape."""

    snapshot: Snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield every gauge, and how often settings were refused."""
        snapshot = self.snapshot
        failures = "Times the settings were refused."
        yield CounterMetricFamily(f"{PREFIX}settings_failures", failures, snapshot.settings_failures)
        listing, reading = snapshot.listing, snapshot.reading
        yield from _staged(snapshot.staging)
        for name, text, value in (
            ("memory_used_bytes", "Memory in use, as it was read last.", reading.used_bytes),
            ("memory_total_bytes", "Memory of the slice, as it was read last.", reading.total_bytes),
            ("leases", "Leases that live.", snapshot.leases),
            ("waiters", "Callers that wait for a lease.", sum(each.waiters for each in listing.models)),
            ("triton_up", "1 while there is a connection to the server.", int(snapshot.server_is_up)),
            ("settings_generation", "Times the settings were taken over.", snapshot.settings_generation),
            ("settings_good", "1 while the settings file as it lies there is in use.", not snapshot.settings_error),
        ):
            if value is not None:
                yield GaugeMetricFamily(PREFIX + name, text, value)
        kinds = ("capacity", "resident", "loading", "freeing", "leaked", "free")
        room = {(kind,): getattr(listing, f"{kind}_bytes") for kind in kinds}
        yield _labelled("bytes", "Bytes of the slice, by what is there.", ["kind"], room)
        sources = {(source,): source == reading.source for source in snapshot.memory_sources}
        yield _labelled("memory_source", "1 for where readings of memory come from.", ["source"], sources)
        found = Counting(each.state for each in listing.models)
        states = {(state,): found[state] for state in State}
        yield _labelled("models", "Models in each state.", ["state"], states)
        named = sorted(listing.models, key=lambda each: each.model)[: snapshot.named_models]
        state_of = {(each.model, each.state): 1 for each in named}
        yield _labelled("model_state", "1 for the state that a model is in.", ["model", "state"], state_of)
        known = [each for each in named if each.footprint_bytes is not None]
        sizes = {(each.model, each.footprint_from): each.footprint_bytes for each in known}
        text = "What a model takes, and how that is known."
        yield _labelled("model_footprint_bytes", text, ["model", "from"], sizes)
        took = {
            (each.model,): snapshot.load_seconds[each.model] for each in named if each.model in snapshot.load_seconds
        }
        text = "Seconds that the last load of a model took, also before a restart of the policy."
        yield _labelled("model_load_seconds", text, ["model"], took)
        since = {
            (each.model,): snapshot.taken - each.state_seconds
            for each in named
            if each.state == State.QUARANTINED and each.state_seconds is not None
        }
        text = "Unix time since when a model is not tried any more."
        yield _labelled("model_quarantined_timestamp_seconds", text, ["model"], since)


def _staged(near: StagingCounts | None) -> Iterator[Metric]:
    """Yield what was staged; without samples where nothing is."""
    loads = CounterMetricFamily(f"{PREFIX}staging_loads", "Loads, by where their files were.", labels=["files"])
    copied = CounterMetricFamily(f"{PREFIX}staging_copied_bytes", "Bytes that were copied near the server.", labels=[])
    ahead = CounterMetricFamily(f"{PREFIX}staging_ahead", "Models that were staged before a load needed it.", labels=[])
    gone = CounterMetricFamily(f"{PREFIX}staging_discarded", "Models whose files went for those of others.", labels=[])
    room = {}
    if near is not None:
        for words, number in {"near": near.found, "copied": near.copied, "far": near.passed}.items():
            loads.add_metric([words], number)
        for family, number in ((copied, near.bytes), (ahead, near.ahead), (gone, near.discarded)):
            family.add_metric([], number)
        room = {("used",): near.used_bytes, ("size",): near.size_bytes}
    yield from (loads, copied, ahead, gone)
    yield _labelled("staging_bytes", "Bytes that staged files take, and may take.", ["kind"], room)


def _labelled(name: str, text: str, labels: list[str], values: Mapping[Any, Any]) -> Metric:
    """Return gauges by their labels' words."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for words, value in values.items():
        family.add_metric(words, value)
    return family


def render(snapshot: Snapshot) -> bytes:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(snapshot.counts.registry) + generate_latest(SnapshotCollector(snapshot))


def tell(
    event: messages.Event, counts: Counts, footprints: Footprints, specs: Mapping[str, ModelSpec], named: int
) -> None:
    """Log and count an event, by name for so many models, and remember what footprints and quarantines it tells of."""
    level, text, counted = _LINES[type(event)]
    said = {to_camel(field.name): getattr(event, field.name) for field in fields(event)}
    name = getattr(event, "model", "")
    said["event"] = re.sub(r"(?<!^)(?=[A-Z])", "-", type(event).__name__).lower()
    log.log(level, text, *([name] if "%s" in text else []), extra={"said": said})
    match event:
        case messages.Loaded():
            counts.histograms["load_seconds"].observe(event.seconds)
            counts.count("loads", name, named)
            for each, size in {name: None, **event.measured}.items():
                if (spec := specs.get(each)) is not None:
                    near = event.seconds - event.copied_seconds
                    footprints.learn(each, spec.stamp, size, near if each == name else 0.0)
        case messages.Quarantined() if (spec := specs.get(name)) is not None:
            footprints.quarantine(name, Quarantine(stamp=spec.stamp, versions=spec.versions, why=event.why))
        case messages.Allowed():
            footprints.quarantine(name, None)
        case messages.Evicted():
            counts.evictions.labels(event.reason).inc()
            counts.count("evictions", name, named, event.reason)
            if event.wanted_by:
                counts.count("evicted_others", event.wanted_by, named)
        case messages.Freed():
            counts.histograms["freeing_seconds"].observe(event.seconds)
        case messages.LoadFailed():
            counts.count("load_failures", name, named)
    if counted:
        counts.totals[counted].inc()
