"""The benchmarks run, and report their measurements. No test depends on time."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from tidegate_eviction.simulate.trace import write_trace
from tidegate_eviction.simulate.zoo import Workload, generate

from lab.bench import iac, report
from lab.bench.eviction.__main__ import GOALS as EVICTION
from lab.bench.proxy.__main__ import GOALS as PROXY
from lab.bench.proxy.__main__ import ROWS
from lab.bench.proxy.rows import Result, compared
from lab.bench.report import Figures, last_line
from lab.local_cluster.stand_ins import pinned
from lab.local_plane.process import CannotBeHadError, ProcessError
from rollout.contexts import refuse_tags
from rollout.waves.plan import stacks_of
from stacks.validate import read_definition

ROOT = Path(__file__).resolve().parents[3]
SMALL = generate(Workload(models=10, requests=200, spread=0.5, load_mb_per_second=20))
FOUND = {"simulated": Figures({"lost_vs_simple_40": 0.70349, "lost_vs_simple_25": 2614.4}, [("this", "so much")])}


def run(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}
    command = [sys.executable, "-m", f"lab.bench.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("module", ["eviction", "iac", "proxy"])
def test_help_and_an_unknown_option_measure_nothing(module: str) -> None:
    assert run(module, "--help").stdout.startswith(f"usage: python -m lab.bench.{module} ")
    assert (run(module, "--helf").returncode, run(module, "--helf").stdout) == (2, "")


def text_of(table: Table) -> str:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_figures_are_rounded_and_missing_ones_are_marked_in_the_table() -> None:
    measured = {key: value for key, value in last_line(EVICTION, FOUND).items() if value is not None}
    assert measured == {"lost_vs_simple_40": 0.703, "lost_vs_simple_25": 2614}
    text = text_of(report.table("title", "about", EVICTION, FOUND))
    assert "so much" in text
    assert "0.703" in text
    assert text.count("NOT MEASURED") == len(EVICTION) - 2


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ProcessError("it ended"), "NOT MEASURED: DAYS (it ended)"),
        (CannotBeHadError("no Triton"), "NOT MEASURED: DAYS (A PROGRAM CANNOT RUN HERE: no Triton)"),
    ],
)
def test_a_part_that_cannot_be_measured_here_is_named_and_the_others_are_measured(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_here() -> Figures:
        raise error

    parts: dict[str, Callable[[], Figures]] = {"days": not_here, "simulated": lambda: FOUND["simulated"]}
    assert report.measure(EVICTION, parts) == FOUND
    text = capsys.readouterr().err
    assert line in text
    assert "lost_vs_simple_days" in text


def test_in_every_other_run_the_last_comes_first() -> None:
    assert list(report.turns(["a", "b"], 2)) == [(-1, "a"), (-1, "b"), (0, "b"), (0, "a"), (1, "a"), (1, "b")]


def test_engines_and_rollouts_are_compared_by_their_medians() -> None:
    up = "tidegate up --engine helm"
    found = iac.compared({"kubectl apply, and wait": [2.0, 1.0, 9.0], up: [3.0], f"{up}, again": [1.5]})
    assert found.figures == {"helm_up_vs_kubectl": 1.5, "noop_vs_up": 0.5}
    assert found.lines[0] == ("kubectl apply, and wait", "2.00 s (1.00 – 9.00 s, 3 times)")


@pytest.mark.parametrize(
    ("file", "environment"), [(iac.REFERENCE, iac.STACK.split("-")[0]), (iac.SIX_PLANES, iac.ENVIRONMENT)]
)
def test_every_measured_stack_can_be_applied(file: Path, environment: str, tmp_path: Path) -> None:
    read = read_definition(pinned(file, tmp_path))
    refuse_tags(read, list(stacks_of(read, environment).values()))


def test_policies_are_simulated_on_any_trace_and_json_comes_last(tmp_path: Path) -> None:
    write_trace(SMALL, tmp_path / "t.csv")
    done = run("eviction", "--trace", str(tmp_path / "t.csv"), "--only", "simulated")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == [*EVICTION]
    measured = {key for key, value in found.items() if value is not None}
    assert measured == {f"lost_vs_simple_{share}" for share in (25, 40, 60)}
    assert "NOT MEASURED: lost_vs_simple_days" in done.stderr


V2 = {
    "nginx": [Result(100, 0.1, 0.2, 9, 0.99), Result(50, 0.1, 0.4, 9, 0.5), Result(10, 0.1, 0.1, 9, 0.97)],
    "proxy": [Result(80, 0.1, 0.3, 12, 0.99), Result(45, 0.1, 0.4, 12, 0.98), Result(5, 0.1, 0.3, 12, 0.99)],
}


def test_a_row_has_the_median_of_each_runs_ratio_and_a_line_for_each_contestant() -> None:
    found = compared(ROWS["v2"], V2)
    assert found.figures == {"v2_vs_nginx": 0.8, "v2_p99_vs_nginx": pytest.approx(1.5)}
    lines = dict(found.lines)
    assert lines["/v2/…/infer, 32 connections: proxy"] == (
        "45/s (5 – 80) · p50 100.00 ms · p99 300.00 ms · 12 µs CPU · 99% of its core"
    )
    assert lines["/v2/…/infer, 32 connections: envoy"] == "NOT MEASURED"
    stream = {"nginx": [Result(p50=0.001)], "proxy": [Result(p50=0.0015)]}
    assert compared(ROWS["stream_first_token"], stream).figures == {"stream_first_token_vs_nginx": 1.5}


@pytest.mark.thorough
def test_a_row_is_measured_against_real_peers() -> None:
    done = run("proxy", "--runs", "1", "--seconds", "1", "--only", "v2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == [*PROXY]
    measured = {key for key, value in found.items() if value is not None}
    missing = {"v2_vs_nginx", "v2_p99_vs_nginx", "v2_vs_envoy"} - measured
    assert not missing or "CANNOT RUN HERE" in done.stderr, done.stderr
    assert all(found[key] > 0 for key in measured)
