"""Metrics as Prometheus reads them."""

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tidegate_eviction.core.states import State
from tidegate_eviction.server import MemoryReading
from tidegate_eviction.serving.metrics import NAMED_MODELS, Snapshot, SnapshotCollector, render

from tests.components.alerts import asked_for

from .views import MIB, listed, view

README = Path(__file__).resolve().parents[4] / "policies" / "eviction" / "README.md"


def samples(seen: Snapshot) -> Mapping[tuple[str, ...], float]:
    """Return each sample by its name, without the prefix, and its labels' values."""
    families = text_string_to_metric_families(render(seen).decode())
    return {
        (each.name.removeprefix("tidegate_eviction_"), *each.labels.values()): each.value
        for family in families
        for each in family.samples
    }


def test_what_happened_is_counted() -> None:
    seen = view()
    counts = seen.counts
    counts.acquires.update({"hit": 5, "loaded": 2, "busy": 1})
    counts.evictions.update({"room": 3})
    counts.totals["requests"] = 70
    for seconds in (0.2, 3):
        counts.histograms["load_seconds"].add(seconds)
    said = samples(seen)
    assert {key: said["acquires_total", key] for key in ("hit", "loaded", "busy")} == {"hit": 5, "loaded": 2, "busy": 1}
    assert (said["evictions_total", "room"], said["requests_total",]) == (3, 70)
    assert (said["load_seconds_count",], said["load_seconds_sum",]) == (2, 3.2)
    assert (said["load_seconds_bucket", "0.25"], said["load_seconds_bucket", "5.0"]) == (1, 2)
    assert said["leases",] == 2


def test_the_slice_is_told_in_bytes() -> None:
    said = samples(view(listed("a", footprint_bytes=400 * MIB), leaked=MIB))
    assert {kind: said["bytes", kind] / MIB for kind in ("capacity", "resident", "leaked", "free")} == {
        "capacity": 1000, "resident": 400, "leaked": 1, "free": 600,
    }  # fmt: skip
    assert (said["memory_used_bytes",], said["memory_total_bytes",], said["memory_source", "nvml"]) == (5, 9, 1)


def test_memory_that_nobody_reads_has_no_number() -> None:
    said = samples(view(reading=MemoryReading()))
    assert ("memory_used_bytes",) not in said
    assert (said["memory_source", "none"], said["memory_source", "nvml"]) == (1, 0)


def test_each_state_is_there_and_each_model_in_one() -> None:
    said = samples(view(listed("a", footprint_bytes=5, footprint_from="measured"), listed("b", "quarantined")))
    assert {state.value for state in State} == {key[1] for key in said if key[0] == "models"}
    assert (said["models", "resident"], said["models", "quarantined"], said["models", "cold"]) == (1, 1, 0)
    assert [key for key in said if key[0] == "model_state"] == [
        ("model_state", "a", "resident"), ("model_state", "b", "quarantined"),
    ]  # fmt: skip
    assert said["model_footprint_bytes", "measured", "a"] == 5


def test_the_number_of_names_is_bounded() -> None:
    said = samples(view(*(listed(f"m{number}", "cold") for number in range(NAMED_MODELS + 50))))
    assert len([key for key in said if key[0] == "model_state"]) == NAMED_MODELS
    assert said["models", "cold"] == NAMED_MODELS + 50


def test_trouble_shows() -> None:
    said = samples(view(server_is_up=False, settings_error="x", settings_failures=3))
    assert (said["triton_up",], said["settings_good",], said["settings_failures_total",]) == (0, 0, 3)
    said = samples(view())
    assert (said["triton_up",], said["settings_good",]) == (1, 1)


def test_the_readme_lists_every_metric() -> None:
    families = SnapshotCollector(view(listed("a", footprint_bytes=1))).collect()
    rows = [
        f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.documentation} |"
        for family in families
    ]
    text = README.read_text("utf-8")
    assert [row for row in rows if row not in text] == []
    assert len([line for line in text.splitlines() if line.startswith("| `tidegate_eviction_")]) == len(rows)


def test_what_alerts_ask_for_is_measured() -> None:
    families = text_string_to_metric_families(render(view()).decode())
    there = [(each.name, each.labels) for family in families for each in family.samples]
    asked = asked_for("tidegate_eviction_")
    assert len(asked) == 4
    for name, labels in asked:
        assert any(name == each and labels.items() <= found.items() for each, found in there), name
