import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from capacity.advising import lines_of, subjects
from capacity.lines import too_few
from capacity.pressures import Pressures
from capacity.recorded import read_samples
from capacity.samples import Recorded
from cli.app import app
from lab.local_plane.prometheus import Prometheus, prometheus
from stacks.stack import Definition
from stacks.validate import read_definition

from .definition import write
from .situations import POD, SECONDS, SMALL, Made, busy, calls, definition, loads, tree, work
from .test_capacity_prometheus import imported

EVERY = 15.0
BEFORE = 600.0  # Seconds of samples before the window begins.


def trouble() -> Made:
    """Models that are called again and again, and evict each other."""
    made = Made()
    calls(made, dict.fromkeys(SMALL, 720.0), late=1800.0, waited=18000.0)
    for number, name in enumerate(SMALL):
        loads(made, name, 360.0, 4.0 + number, 2e9 + 4e8 * number, evicted=354.0)
    busy(made, "no-room", 72.0)
    work(made, "ant", queued=36.0, computed=360.0)
    made.was("tidegate_eviction_models", 1.0, pod=POD, state="queued")
    made.was("tidegate_proxy_in_flight", 0.0)
    for pod in (POD, "inference-proxy-0"):
        made.was("up", 1.0, pod=pod)
    return made


def written(made: Made, namespace: str, end: float) -> dict[str, list[str]]:
    """Return the samples in OpenMetrics, from before their start. Increases are even."""
    families: dict[str, list[str]] = {}
    for metric, series in made.series.items():
        lines = families[f"{metric} unknown"] = []
        for each in series:
            (_, first), (_, last) = each.samples
            labels = {"pod": "inference-proxy-0", "namespace": namespace, **each.labels}
            if metric.endswith("footprint_bytes"):
                labels["from"] = "measured"
            of = ",".join(f'{name}="{value}"' for name, value in labels.items())
            for number in range(int((SECONDS + BEFORE) / EVERY) + 1):
                at = number * EVERY - BEFORE
                value = first + round((last - first) * (at + BEFORE) / SECONDS)
                lines.append(f"{metric}{{{of}}} {value} {end - SECONDS + at}")
    return families


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Definition:
    return definition(tmp_path_factory.mktemp("definition"))


@pytest.fixture(scope="module")
def server(here: Definition, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    imported(written(trouble(), here.stacks[0].namespace, float(int(time.time()))), folder)
    with prometheus(folder) as running:
        yield running


def run(file: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["advise", file, *arguments])


def refused(file: str, *arguments: str, code: int = 2) -> str:
    ran = run(file, *arguments)
    assert ran.exit_code == code, ran.output
    assert ran.stdout == ""
    (sentence,) = ran.stderr.splitlines()
    return sentence


def pressures_of(found: Definition, recorded: Recorded) -> Pressures:
    (subject,) = subjects(found.stacks[0], recorded)
    return subject.found


def test_a_real_prometheus_has_the_pressures(here: Definition, server: Prometheus) -> None:
    recorded = read_samples(server.url, f'namespace="{here.stacks[0].namespace}"', 1.0)
    there, made = (pressures_of(here, each) for each in (recorded, Recorded(trouble().samples(), None)))
    for figure in (
        "calls",
        "late_calls",
        "waited_seconds",
        "loads",
        "evicted",
        "busy_for_room",
        "load_seconds",
        "taken",
    ):
        assert getattr(there, figure) == pytest.approx(getattr(made, figure), rel=0.05), figure
    assert there.queued == pytest.approx(1.0, rel=0.05)
    assert there.work.queue_share == pytest.approx(0.1, rel=0.05)
    assert there.replicas == 1
    assert recorded.trace
    assert len(recorded.trace) == pytest.approx(5 * 720, rel=0.05)


def test_a_pool_in_trouble_is_advised(here: Definition, server: Prometheus) -> None:
    ran = run(here.document.file, "--prometheus", server.url, "--hours", "1")
    assert ran.exit_code == 0, ran.output
    assert "memory   short" in ran.stdout
    assert "advice   a larger slice:" in ran.stdout
    assert "(the same calls, simulated)" in ran.stdout
    assert "Too little traffic: record at least a day before you decide." in ran.stdout


@pytest.mark.parametrize(
    ("calls", "seconds", "least"),
    [(1000, 24 * 3600, ""), (999, 24 * 3600, "1,000 calls"), (56, 81, "a day and 1,000 calls")],
)
def test_too_little_traffic_is_reported_with_the_least_to_record(calls: int, seconds: float, least: str) -> None:
    warning = f"Too little traffic: record at least {least} before you decide."
    assert too_few(calls, seconds) == ([warning] if least else [])


def test_advice_without_a_trace_gives_the_reason_for_no_simulation(here: Definition) -> None:
    recorded = Recorded(trouble().samples(), None, "No load time is known.")
    output = "\n".join(lines_of(here, here.stacks[0], recorded))
    assert "Nothing could be simulated: No load time is known." in output
    assert "advice   nothing: " in output


def test_metrics_of_another_environment_are_ignored(here: Definition, server: Prometheus) -> None:
    sentence = refused(here.document.file, "--prometheus", server.url, "--match", 'cluster="west"')
    assert "has no samples of a Tidegate proxy with namespace=" in sentence
    assert 'cluster="west" in these 24 hours. Check --match, --stack, --hours, and `monitoring`' in sentence


def test_invalid_hours_and_shares_are_reported(here: Definition) -> None:
    for wrong in ("--hours 0", "--target 99"):
        assert refused(here.document.file, "--prometheus", "http://here", *wrong.split()).startswith(f"{wrong}")


def test_a_prometheus_is_to_be_named(here: Definition) -> None:
    assert refused(here.document.file).startswith("Add the Prometheus to read: --prometheus <url>")


def test_several_stacks_need_the_option_stack(tmp_path: Path) -> None:
    two = tree()
    two["environments"].append({"name": "trial", "datasets": [{"name": "models", "path": "/trial"}]})
    two["dataPlanes"][0]["environments"].append("trial")
    two["dataPlanes"][0]["gpus"][0]["nodes"] = 2
    file = write(tmp_path, two)
    names = [stack.name for stack in read_definition(file).stacks]
    sentence = refused(str(file), "--prometheus", "http://here")
    assert sentence.startswith("Add the stack that this Prometheus scrapes: --stack, one of ")
    assert all(name in sentence for name in names)
    near = f'There is no stack {names[0]}x. Did you mean "{names[0]}"? There are: '
    assert refused(str(file), "--prometheus", "http://here", "--stack", f"{names[0]}x").startswith(near)
