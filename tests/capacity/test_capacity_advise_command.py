"""`tidegate advise` as people call it: of a real Prometheus, and with bad input."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from capacity.advising import lines_of, subjects
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
BEFORE = 600.0  # Seconds that are remembered before the window begins.


def trouble() -> Made:
    """Models that are called again and again, and have to go for each other."""
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
    """Return the same in OpenMetrics, from before its beginning on: what grew did so evenly."""
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
    """One that remembers the trouble of the last hour."""
    folder = tmp_path_factory.mktemp("prometheus")
    imported(written(trouble(), here.stacks[0].namespace, float(int(time.time()))), folder)
    with prometheus(folder) as running:
        yield running


def run(file: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["advise", file, *arguments])


def refused(file: str, *arguments: str, code: int = 2) -> str:
    """Return the one sentence that a command ends with."""
    ran = run(file, *arguments)
    assert ran.exit_code == code, ran.output
    assert ran.stdout == ""
    (sentence,) = ran.stderr.splitlines()
    return sentence


def pressures_of(found: Definition, recorded: Recorded) -> Pressures:
    (subject,) = subjects(found.stacks[0], recorded)
    return subject.found


def test_what_a_real_prometheus_is_asked_is_what_pressed(here: Definition, server: Prometheus) -> None:
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


def test_without_a_trace_advice_says_why_nothing_was_simulated(here: Definition) -> None:
    recorded = Recorded(trouble().samples(), None, "What loads take is not known.")
    said = "\n".join(lines_of(here, here.stacks[0], recorded))
    assert "Nothing could be simulated: What loads take is not known." in said
    assert "advice   nothing: " in said


def test_what_prometheus_has_of_another_environment_is_none_of_this_ones(here: Definition, server: Prometheus) -> None:
    sentence = refused(here.document.file, "--prometheus", server.url, "--match", 'cluster="west"')
    assert "has scraped no proxy of Tidegate's with namespace=" in sentence
    assert (
        'cluster="west" in these 24 hours: see --match, --stack, --hours, and `monitoring` in the definition.'
        in sentence
    )


def test_what_is_no_time_and_no_share_is_told(here: Definition) -> None:
    for wrong in ("--hours 0", "--target 99"):
        assert refused(here.document.file, "--prometheus", "http://here", *wrong.split()).startswith(f"{wrong}")


def test_a_prometheus_is_to_be_named(here: Definition) -> None:
    assert refused(here.document.file).startswith("Name the Prometheus to read: --prometheus <url>")


def test_a_stack_is_to_be_said_where_there_are_several(tmp_path: Path) -> None:
    two = tree()
    two["environments"].append({"name": "trial", "datasets": [{"name": "models", "path": "/trial"}]})
    two["dataPlanes"][0]["environments"].append("trial")
    two["dataPlanes"][0]["gpus"][0]["nodes"] = 2
    file = write(tmp_path, two)
    names = [stack.name for stack in read_definition(file).stacks]
    sentence = refused(str(file), "--prometheus", "http://here")
    assert sentence.startswith("Name the stack that this Prometheus reads: --stack, one of ")
    assert all(name in sentence for name in names)
    near = f"There is no stack {names[0]}x: did you mean {names[0]}? There are: "
    assert refused(str(file), "--prometheus", "http://here", "--stack", f"{names[0]}x").startswith(near)
