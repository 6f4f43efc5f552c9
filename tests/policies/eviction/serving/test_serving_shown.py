from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic.alias_generators import to_camel
from tidegate_contracts import log_fields, metrics
from tidegate_contracts.lease import LeaseOf, Listed, Listing, State
from tidegate_eviction.core import messages
from tidegate_eviction.serving.footprints import Footprints
from tidegate_eviction.serving.metrics import NAMED_MODELS, Counts, Snapshot, SnapshotCollector, observe, render
from tidegate_eviction.staging.stager import StagingCounts
from tidegate_eviction.triton.memory import MemoryReading, MemorySource

from tests.components.alerts import series_read

MIB = 1 << 20


def listed(model: str, state: Any = "resident", **more: Any) -> Listed:
    return Listed(model=model, state=state, **more)


def view(*models: Listed, **more: Any) -> Snapshot:
    resident = sum(each.footprint_bytes or 0 for each in models if each.state == "resident")
    listing = Listing(
        incarnation="x.0", policy="lru-idle", capacity_bytes=1000 * MIB, resident_bytes=resident, loading_bytes=0,
        freeing_bytes=0, leaked_bytes=more.pop("leaked", 0), free_bytes=1000 * MIB - resident, models=models,
    )  # fmt: skip
    found: dict[str, Any] = {
        "reading": MemoryReading(MemorySource.NVML, 5),
        "leases": 2,
    }
    return Snapshot(listing, **(found | more))


def samples(seen: Snapshot) -> Mapping[tuple[str, ...], float]:
    families = text_string_to_metric_families(render(seen).decode())
    return {
        (each.name.removeprefix("tidegate_eviction_"), *each.labels.values()): each.value
        for family in families
        for each in family.samples
    }


def test_events_are_counted() -> None:
    seen = view()
    counts = seen.counts
    counts.acquires.labels("hit").inc(5)
    counts.evictions.labels("room").inc(3)
    for seconds in (0.2, 3):
        counts.load_seconds.observe(seconds)
    found = samples(seen)
    assert (found["acquires_total", "hit"], found["evictions_total", "room"]) == (5, 3)
    assert (found["load_seconds_count",], found["load_seconds_sum",]) == (2, 3.2)
    assert (found["load_seconds_bucket", "0.25"], found["load_seconds_bucket", "5.0"]) == (1, 2)


STAGED = StagingCounts(found=5, copied=2, passed=1, bytes=600, used_bytes=500, size_bytes=900)
BROKEN = listed("b", "quarantined", state_seconds=60.0)


@pytest.mark.parametrize(
    ("seen", "prefix", "expected"),
    [
        (view(), "memory_", {"used_bytes": 5, "source nvml": 1, "source process": 0, "source none": 0}),
        (view(reading=MemoryReading()), "memory_", {"source nvml": 0, "source process": 0, "source none": 1}),
        (
            view(listed("a", footprint_bytes=5, footprint_from="measured"), BROKEN), "model",
            {"s resident": 1, "s quarantined": 1, **{f"s {each}": 0 for each in {*State} - {"resident", "quarantined"}},
             "_state a resident": 1, "_state b quarantined": 1, "_footprint_bytes measured a": 5,
             "_quarantined_timestamp_seconds b": 940},
        ),
        (
            view(listed("a"), listed("b", "cold"), load_seconds={"a": 2.5, "gone": 1.0}), "model_load_seconds",
            {" a": 2.5},
        ),
        (view(), "staging", {}),
        (
            view(staging=STAGED), "staging",
            {"_loads_total near": 5, "_loads_total copied": 2, "_loads_total far": 1, "_copied_bytes_total": 600,
             "_bytes used": 500, "_bytes size": 900},
        ),
        (view(server_is_up=False), "triton_up", {"": 0}),
        (view(settings_error="x"), "settings", {"_good": 0}),
    ],
)  # fmt: skip
def test_a_snapshot_shows(seen: Snapshot, prefix: str, expected: dict[str, float]) -> None:
    found = {" ".join(key): number for key, number in samples(replace(seen, taken=1000.0)).items()}
    assert {key.removeprefix(prefix): number for key, number in found.items() if key.startswith(prefix)} == expected


def test_the_number_of_names_is_bounded() -> None:
    took = {f"m{number}": 1.0 for number in range(NAMED_MODELS + 50)}
    found = samples(view(*(listed(name, "cold") for name in took), load_seconds=took))
    assert len([key for key in found if key[0] == "model_load_seconds"]) == NAMED_MODELS
    assert len([key for key in found if key[0] == "model_state"]) == NAMED_MODELS
    assert found["models", "cold"] == NAMED_MODELS + 50


def test_events_are_counted_by_model_up_to_a_limit_and_together_beyond_it() -> None:
    seen, footprints = view(counts=Counts(2)), Footprints(Path("nowhere"))
    for name in ("a", "b", "a", "c"):
        loaded = messages.Loaded(name, 0.1, 1, {}, 0)
        evicted = messages.Evicted(name, "room", "b", 1.0, 1)
        for event in (loaded, messages.LoadFailed(name, "no", 1, 5.0), evicted):
            observe(event, seen.counts, footprints, {})
    found = samples(seen)
    for name in ("model_loads_total", "model_load_failures_total"):
        assert {key[1]: number for key, number in found.items() if key[0] == name} == {"a": 2, "b": 1, "*": 1}
    evictions = {key[1:]: number for key, number in found.items() if key[0] == "model_evictions_total"}
    assert evictions == {("a", "room"): 2, ("b", "room"): 1, ("*", "room"): 1}
    assert found["model_evicted_others_total", "b"] == 4
    assert found["load_failures_total",] == 4


def test_the_metrics_are_those_of_the_catalogue() -> None:
    counts = StagingCounts(found=5, used_bytes=500, size_bytes=900)
    seen = view(listed("a", footprint_bytes=1, leases=(LeaseOf(holder="p", seconds_left=1.0, in_flight=0),)),
                staging=counts)  # fmt: skip
    found = [*seen.counts.registry.collect(), *SnapshotCollector(seen).collect()]
    catalogue = {each.name: each for each in metrics.EVICTION.values()}
    shown = {each.name: (each.type, each.documentation) for each in found}
    assert shown == {name: (each.kind, each.text) for name, each in catalogue.items()}
    for each in found:
        assert {frozenset(sample.labels.keys() - {"le"}) for sample in each.samples} <= {
            frozenset(catalogue[each.name].labels)
        }, each.name


def test_every_field_of_an_event_is_one_of_the_logs() -> None:
    events = [each for each in get_args(messages.Event) if each is not messages.Answered]
    found = {to_camel(field.name) for event in events for field in fields(event)}
    assert found <= log_fields.FIELDS.keys()


def test_every_metric_of_an_alert_is_measured() -> None:
    seen = view(listed("a", state=State.QUARANTINED, state_seconds=9.0))
    seen.counts.count("load_failures", "a")
    seen.counts.evictions.labels("room").inc()
    families = text_string_to_metric_families(render(seen).decode())
    there = [(each.name, each.labels) for family in families for each in family.samples]
    series = series_read("tidegate_eviction_")
    assert len({name for name, _ in series}) == 10
    for name, labels in series:
        assert any(
            name == each and {*labels} <= {*found} and all(found[k] == v for k, v in labels.items() if v)
            for each, found in there
        ), name
