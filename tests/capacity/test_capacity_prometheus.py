"""Hours of traffic in a real Prometheus become a trace with every call in its place."""

import gzip
import random
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tidegate_eviction.simulate.trace import read_trace
from typer.testing import CliRunner

from capacity.prometheus import Prometheus as Source
from capacity.recorded import read_samples
from capacity.recording import record
from capacity.trace import trace_of
from cli.app import app
from lab.local_plane.prometheus import DATA, Prometheus, installed, prometheus
from tests.proxy.rigs.pytest_rigs import not_run

HOURS = 9.0
EVERY = 30.0
MODELS = [f"m{number}" for number in range(8)]
CALLER = "mrs-visitor"
NAMESPACE = "inference-prod"
MATCH = f'namespace="{NAMESPACE}"'


@dataclass
class Proxy:
    """A scraped process. Its counters begin at 0."""

    pod: str
    begins: float
    ends: float
    calls: list[tuple[float, str, str]] = field(default_factory=list)  # Time, model, status.

    def scrapes(self) -> list[float]:
        offset = 3.0 + len(self.pod) % 7
        first = int((self.begins - offset) // EVERY) + 1
        return [offset + EVERY * number for number in range(first, int((self.ends - offset) // EVERY) + 1)]


@dataclass
class Past:
    proxies: list[Proxy]
    calls: list[tuple[float, str]] = field(default_factory=list)  # All samples of a scrape, by time.
    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def past(start: float, end: float) -> Past:
    """Two proxies. Another pod replaces one, and the other restarts in place. One model is called once."""
    chance = random.Random(15)
    hour = 3600.0
    proxies = [
        Proxy("proxy-a", start - hour, start + 3 * hour),
        Proxy("proxy-ccc", start + 3 * hour - 100, end),
        Proxy("proxy-bb", start - hour, start + 6 * hour),
        Proxy("proxy-bb", start + 6 * hour + 20, end),
    ]
    made = Past(proxies)
    for number, model in enumerate(MODELS):
        for _ in range(20 * 2**number):
            at = chance.uniform(start - hour, end)
            running = [each for each in proxies if each.begins < at and any(at <= seen for seen in each.scrapes()[-1:])]
            if running and abs(at - start) > EVERY:  # one that is next to the beginning may or may not be in it
                chance.choice(running).calls.append((at, model, chance.choice(["200", "200", "503"])))
    proxies[1].calls.append((start + 4.5 * hour, "once", "200"))
    proxies[1].calls.append((start + 4.6 * hour, "*", "200"))
    proxies[1].calls.append((start + 4.7 * hour, "preloaded", "200"))
    for proxy in proxies:
        count: Counter[tuple[str, str]] = Counter()
        calls = sorted(proxy.calls)
        labels = f'namespace="{NAMESPACE}",pod="{proxy.pod}"'
        for at in proxy.scrapes():
            while calls and calls[0][0] <= at:
                moment, model, status = calls.pop(0)
                count[model, status] += 1
                if moment >= start:
                    made.calls.append((moment, model))
            made.lines["tidegate_proxy_in_flight gauge"].append(f"tidegate_proxy_in_flight{{{labels}}} 0 {at}")
            for (model, status), number in count.items():
                of = f'{labels},server="main",model="{model}",protocol="http",status="{status}"'
                line = f"tidegate_proxy_requests_total{{{of}}} {number} {at}"
                made.lines["tidegate_proxy_requests counter"].append(line)
            who = f'{labels},principal="{CALLER}",source="api-key",protocol="http",status="200"'
            line = f"tidegate_proxy_caller_requests_total{{{who}}} {count.total()} {at}"
            made.lines["tidegate_proxy_caller_requests counter"].append(line)
    for at in range(int(start), int(end), 30):
        of = 'namespace="inference-dev",pod="proxy-a"'
        made.lines["tidegate_proxy_in_flight gauge"].append(f"tidegate_proxy_in_flight{{{of}}} 0 {at}")
        of += ',server="main",model="m0",protocol="grpc",status="0"'
        made.lines["tidegate_proxy_requests counter"].append(f"tidegate_proxy_requests_total{{{of}}} {at} {at}")
    known = f'namespace="{NAMESPACE}",pod="main-small-0"'
    for at in range(int(start), int(end), 600):
        for number, model in enumerate([*MODELS, "once"], 1):
            of = f'{known},model="{model}"'
            size = f'tidegate_eviction_model_footprint_bytes{{{of},from="measured"}} {number}000000 {at}'
            made.lines["tidegate_eviction_model_footprint_bytes gauge"].append(size)
            took = f"tidegate_eviction_model_load_seconds{{{of}}} {number}.5 {at}"
            made.lines["tidegate_eviction_model_load_seconds gauge"].append(took)
            of += ',version="1"'
            work = f"nv_inference_request_duration_us{{{of}}} {number * (at - int(start) + 600)}000 {at}"
            made.lines["nv_inference_request_duration_us unknown"].append(work)
            done = f"nv_inference_request_success{{{of}}} {at - int(start) + 600} {at}"
            made.lines["nv_inference_request_success unknown"].append(done)
    return made


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Past, Path, float]:
    end = EVERY * int((time.time() - 5) / EVERY)  # so that scrapes and calls are always the same
    made = past(end - HOURS * 3600, end)
    folder = tmp_path_factory.mktemp("prometheus")
    imported(made.lines, folder)
    return made, folder, end


def imported(families: Mapping[str, Sequence[str]], folder: Path) -> None:
    with not_run("A REAL PROMETHEUS"):
        package = installed()
    text = "".join(f"# TYPE {family}\n" + "\n".join(lines) + "\n" for family, lines in families.items()) + "# EOF\n"
    (folder / "past.txt").write_text(text, "utf-8")
    command: list[str | Path] = [
        package.path("promtool"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        folder / "past.txt",
        folder / DATA,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def server(remembered: tuple[Past, Path, float], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(remembered[1] / DATA, folder / DATA)  # where it compacts its data
    with prometheus(folder) as running:
        yield running


def matches(moments: list[float], calls: list[float]) -> bool:
    pairs = zip(sorted(moments), sorted(calls), strict=True)
    return all(abs(moment - call) <= EVERY for moment, call in pairs)


def test_every_call_that_was_scraped_is_found_between_its_scrapes(
    remembered: tuple[Past, Path, float], server: Prometheus
) -> None:
    made, _, end = remembered
    recording = record(Source(server.url, MATCH), HOURS, end)
    assert {model for _, model in recording.calls} == {*MODELS, "once", "preloaded"}
    start = end - HOURS * 3600
    for (place, model), moments in recording.calls.items():
        assert place == "main"
        assert matches([start + at for at in moments], [at for at, name in made.calls if name == model]), model
    trace, notes = trace_of(recording)
    assert [each.footprint_bytes for each in trace.models] == [number * 10**6 for number in range(1, 10)]
    assert [each.load_seconds for each in trace.models] == [pytest.approx(number + 0.5) for number in range(1, 10)]
    assert [each.warm_seconds for each in trace.models] == [pytest.approx(number / 1000) for number in range(1, 10)]
    assert [note.partition(" call")[0] for note in notes[:2]] == ["1", "1"]
    assert "(`*`)" in notes[0]
    assert "preloaded" in notes[1]
    assert notes[2].endswith("refused as busy. A retry counts as a second call")


def test_a_server_with_a_low_limit_gets_small_queries(remembered: tuple[Past, Path, float], server: Prometheus) -> None:
    _, folder, end = remembered
    whole = record(Source(server.url, MATCH), HOURS, end)
    with prometheus(folder, options=["--query.max-samples=1500"]) as narrow:
        less = record(Source(narrow.url, MATCH), HOURS, end)
    assert {key: sorted(each) for key, each in less.calls.items()} == {
        key: sorted(each) for key, each in whole.calls.items()
    }


def test_the_command_writes_a_trace_for_the_simulator_without_callers(
    remembered: tuple[Past, Path, float], server: Prometheus, tmp_path: Path
) -> None:
    file = tmp_path / "new" / "day.csv.gz"
    ran = CliRunner().invoke(
        app, ["trace", "--out", str(file), "--prometheus", server.url, "--hours", "8", "--match", MATCH]
    )
    assert ran.exit_code == 0, ran.output
    trace = read_trace(file)
    made, _, end = remembered
    assert len(trace) == pytest.approx(sum(at >= end - 8 * 3600 for at, _ in made.calls), rel=0.01)
    assert ran.stdout.startswith(f"{file}: {len(trace):,} calls of 9 models (")
    assert CALLER.encode() not in gzip.decompress(file.read_bytes())
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_copies_of_series_count_once(remembered: tuple[Past, Path, float], tmp_path: Path) -> None:
    """Two Prometheus servers scrape the same pods, and one of them twice, with another job."""
    made, _, end = remembered
    labels = ['prometheus_replica="a",job="pods"', 'prometheus_replica="b",job="pods"', 'job="again"']
    copied = {
        family: [line.replace("{", f"{{{more},") for more in labels for line in lines]
        for family, lines in made.lines.items()
    }
    imported(copied, tmp_path)
    with prometheus(tmp_path) as running:
        recording = record(Source(running.url, MATCH), HOURS, end)
        samples = read_samples(running.url, MATCH, HOURS)
    expected = Counter(model for _, model in made.calls)
    assert {model: len(moments) for (_, model), moments in recording.calls.items()} == expected - Counter({"*": 1})
    assert "job, prometheus_replica" in recording.source
    found = samples.samples.series("tidegate_proxy_in_flight")
    assert len({each.labels["pod"] for each in found}) == len(found)


def test_calls_of_several_environments_are_not_thrown_together(server: Prometheus, tmp_path: Path) -> None:
    ran = CliRunner().invoke(
        app, ["trace", "--out", str(tmp_path / "day.csv"), "--prometheus", server.url, "--hours", "2"]
    )
    expected = (
        "There are calls in inference-dev, inference-prod. Add one of them: --match 'namespace=\"inference-dev\"'.\n"
    )
    assert (ran.exit_code, ran.stderr, [*tmp_path.iterdir()]) == (2, expected, [])
