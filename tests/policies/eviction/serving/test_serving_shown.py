"""The metrics that Prometheus reads, and what `retry` says."""

import re
import socket
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic.alias_generators import to_camel
from tidegate_contracts import eviction_process, log_fields, metrics
from tidegate_contracts.lease import LeaseOf, Listed, Listing, State
from tidegate_eviction import retrying
from tidegate_eviction.__main__ import app
from tidegate_eviction.core import messages
from tidegate_eviction.serving.files import kept_secret
from tidegate_eviction.serving.footprints import Footprints
from tidegate_eviction.serving.metrics import NAMED_MODELS, Snapshot, SnapshotCollector, render, tell
from tidegate_eviction.staging.stager import StagingCounts
from tidegate_eviction.triton.memory import MemoryReading, MemorySource
from tidegate_eviction.units import bytes_text, seconds_text
from typer.testing import CliRunner

from lab.local_plane.process import HOST, free_ports
from tests.components.alerts import asked_for

MIB = 1 << 20


def listed(model: str, state: Any = "resident", **more: Any) -> Listed:
    return Listed(model=model, state=state, **more)


def view(*models: Listed, **more: Any) -> Snapshot:
    resident = sum(each.footprint_bytes or 0 for each in models if each.state == "resident")
    listing = Listing(
        incarnation="x.0", policy="lru-idle", capacity_bytes=1000 * MIB, resident_bytes=resident, loading_bytes=0,
        freeing_bytes=0, leaked_bytes=more.pop("leaked", 0), free_bytes=1000 * MIB - resident, models=models,
    )  # fmt: skip
    said: dict[str, Any] = {
        "reading": MemoryReading(MemorySource.NVML, 5, 9),
        "leases": 2,
    }
    return Snapshot(listing, **(said | more))


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
    for outcome, number in {"hit": 5, "loaded": 2, "busy": 1}.items():
        counts.acquires.labels(outcome).inc(number)
    counts.evictions.labels("room").inc(3)
    counts.totals["requests"].inc(70)
    for seconds in (0.2, 3):
        counts.histograms["load_seconds"].observe(seconds)
    said = samples(seen)
    assert {key: said["acquires_total", key] for key in ("hit", "loaded", "busy")} == {"hit": 5, "loaded": 2, "busy": 1}
    assert (said["evictions_total", "room"], said["requests_total",]) == (3, 70)
    assert (said["load_seconds_count",], said["load_seconds_sum",]) == (2, 3.2)
    assert (said["load_seconds_bucket", "0.25"], said["load_seconds_bucket", "5.0"]) == (1, 2)
    assert (said["leases",], said["triton_up",]) == (2, 1)


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


def test_what_loads_took_is_said_of_models_that_were_loaded_and_are_still_there() -> None:
    said = samples(view(listed("a"), listed("b", "cold"), load_seconds={"a": 2.5, "gone": 1.0}))
    assert {key: value for key, value in said.items() if key[0] == "model_load_seconds"} == {
        ("model_load_seconds", "a"): 2.5
    }


def test_the_number_of_names_is_bounded() -> None:
    took = {f"m{number}": 1.0 for number in range(NAMED_MODELS + 50)}
    said = samples(view(*(listed(name, "cold") for name in took), load_seconds=took))
    assert len([key for key in said if key[0] == "model_load_seconds"]) == NAMED_MODELS
    assert len([key for key in said if key[0] == "model_state"]) == NAMED_MODELS
    assert said["models", "cold"] == NAMED_MODELS + 50


def test_what_happened_to_models_is_counted_by_name_for_so_many_and_for_the_others_together() -> None:
    seen, footprints = view(), Footprints(Path("nowhere"))
    for name in ("a", "b", "a", "c"):
        loaded = messages.Loaded(name, 0.1, 1, {}, 0)
        evicted = messages.Evicted(name, "room", "b", 1.0, 1)
        for event in (loaded, messages.LoadFailed(name, "no", 1, 5.0), evicted):
            tell(event, seen.counts, footprints, {}, 2)
    said = samples(seen)
    for name in ("model_loads_total", "model_load_failures_total"):
        assert {key[1]: number for key, number in said.items() if key[0] == name} == {"a": 2, "b": 1, "*": 1}
    evictions = {key[1:]: number for key, number in said.items() if key[0] == "model_evictions_total"}
    assert evictions == {("a", "room"): 2, ("b", "room"): 1, ("*", "room"): 1}
    assert said["model_evicted_others_total", "b"] == 4
    assert said["load_failures_total",] == 4


def test_without_names_nothing_is_told_of_one_model() -> None:
    seen = view(listed("a", "quarantined", state_seconds=5.0), named_models=0)
    tell(messages.LoadFailed("a", "no", 1, 5.0), seen.counts, Footprints(Path("nowhere")), {}, 0)
    assert {key[1] for key in samples(seen) if key[0].startswith("model_")} == {"*"}


def test_since_when_a_model_is_in_quarantine_is_told() -> None:
    said = samples(view(listed("a", "quarantined", state_seconds=60.0), listed("b", "cold"), taken=1000.0))
    assert [(key, number) for key, number in said.items() if "quarantined_timestamp" in key[0]] == [
        (("model_quarantined_timestamp_seconds", "a"), 940.0)
    ]


def test_where_loads_found_their_files_is_counted_where_files_are_staged() -> None:
    assert not [key for key in samples(view()) if key[0].startswith("staging")]
    counts = StagingCounts(found=5, copied=2, passed=1, discarded=4, bytes=600, used_bytes=500, size_bytes=900)
    said = {key: number for key, number in samples(view(staging=counts)).items() if key[0].startswith("staging")}
    assert said == {
        ("staging_loads_total", "near"): 5, ("staging_loads_total", "copied"): 2, ("staging_loads_total", "far"): 1,
        ("staging_discarded_total",): 4, ("staging_copied_bytes_total",): 600,
        ("staging_bytes", "used"): 500, ("staging_bytes", "size"): 900,
    }  # fmt: skip


def test_trouble_shows() -> None:
    said = samples(view(server_is_up=False, settings_error="x", settings_failures=3))
    assert (said["triton_up",], said["settings_good",], said["settings_failures_total",]) == (0, 0, 3)


def test_what_is_told_is_what_the_catalogue_has() -> None:
    counts = StagingCounts(found=5, used_bytes=500, size_bytes=900)
    seen = view(listed("a", footprint_bytes=1, leases=(LeaseOf(holder="p", seconds_left=1.0, in_flight=0),)),
                staging=counts)  # fmt: skip
    said = [*seen.counts.registry.collect(), *SnapshotCollector(seen).collect()]
    catalogue = {each.name: each for each in metrics.EVICTION.values()}
    told = {each.name: (each.type, each.documentation) for each in said}
    assert told == {name: (each.kind, each.text) for name, each in catalogue.items()}
    for each in said:
        assert {frozenset(sample.labels.keys() - {"le"}) for sample in each.samples} <= {
            frozenset(catalogue[each.name].labels)
        }, each.name


def test_every_field_of_an_event_is_one_of_the_logs() -> None:
    events = [each for each in get_args(messages.Event) if each is not messages.Answered]
    said = {to_camel(field.name) for event in events for field in fields(event)}
    assert said <= log_fields.FIELDS.keys()


def test_what_alerts_ask_for_is_measured() -> None:
    seen = view(listed("a", state=State.QUARANTINED, state_seconds=9.0))
    seen.counts.count("load_failures", "a", 1)
    seen.counts.evictions.labels("room").inc()
    families = text_string_to_metric_families(render(seen).decode())
    there = [(each.name, each.labels) for family in families for each in family.samples]
    asked = asked_for("tidegate_eviction_")
    assert len({name for name, _ in asked}) == 10
    for name, labels in asked:
        assert any(
            name == each and {*labels} <= {*found} and all(found[k] == v for k, v in labels.items() if v)
            for each, found in there
        ), name


@pytest.mark.parametrize(("command", "advice"), [(["retry", "a"], "retry a"), (["retry", "a b"], "retry 'a b'")])
def test_a_command_without_a_policy_ends_with_one_sentence(tmp_path: Path, command: list[str], advice: str) -> None:
    (port,) = free_ports(1)
    kept_secret(tmp_path / eviction_process.ADMIN_TOKEN_FILE)
    done = CliRunner().invoke(app, [*command, "--address", f"{HOST}:{port}", "--state", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert re.match(f"No eviction policy answers at {HOST}:{port}: .*refused.*--address", done.stderr)
    assert done.stderr.endswith(f" -- python -m tidegate_eviction {advice}\n")


def test_a_policy_that_hangs_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "SECONDS", 0.1)
    kept_secret(tmp_path / eviction_process.ADMIN_TOKEN_FILE)
    with socket.create_server((HOST, 0)) as hangs:
        at = f"{HOST}:{hangs.getsockname()[1]}"
        done = CliRunner().invoke(app, ["retry", "a", "--address", at, "--state", str(tmp_path)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "hangs" in done.stderr
    assert "--address" not in done.stderr


def test_a_command_without_the_state_folder_names_the_option(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["retry", "a", "--state", str(tmp_path / "none")])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--state" in done.stderr


@pytest.mark.parametrize(
    ("size", "said"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (10**9, "954 MiB"), (2**50, "1024 TiB")],
)
def test_sizes_are_said_in_the_unit_that_fits(size: int | None, said: str) -> None:
    assert bytes_text(size) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "–"), (0.04, "0.0 s"), (9.96, "10.0 s"), (119, "119 s"), (300, "5 min"), (9000, "2.5 h")],
)
def test_times_are_said_in_the_unit_that_fits(seconds: float | None, said: str) -> None:
    assert seconds_text(seconds) == said
