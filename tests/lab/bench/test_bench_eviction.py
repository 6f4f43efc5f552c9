"""What the benchmark of the eviction policy says about what it measured."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tidegate_eviction.simulate.report import about
from tidegate_eviction.simulate.trace import write_trace
from tidegate_eviction.simulate.zoo import Zoo, generate

from lab.bench.eviction import __main__ as bench
from lab.bench.eviction.__main__ import TITLE, measure
from lab.bench.eviction.decisions import choice_microseconds, decision_microseconds
from lab.bench.eviction.goals import GOALS, QUICK
from lab.bench.eviction.simulated import measure as simulated
from lab.bench.report import Found, NotHereError, last_line, table

ROOT = Path(__file__).resolve().parents[3]
KEYS = [
    "warm_vs_preloaded",
    "cold_vs_triton",
    "loads_per_stampede",
    "cold_seconds_vs_lru_40",
    "cold_seconds_vs_lru_60",
    "cold_seconds_vs_bound",
    "busy_vs_lru_idle",
    "decide_us_10k",
    "decide_growth",
    "simulate_events_per_s",
    "density",
    "warm_p99_while_loading",
]
SMALL = generate(Zoo(models=10, requests=600, spread=0.5, load_mb_per_second=20))
FOUND = {"simulated": Found({"cold_seconds_vs_lru_40": 0.70349, "decide_us_10k": 2614.4}, [("this", "so much")])}


def test_the_last_line_has_every_key_and_null_for_what_was_not_measured() -> None:
    found = last_line(GOALS, FOUND)
    assert list(found) == KEYS
    measured = {key: value for key, value in found.items() if value is not None}
    assert measured == {"cold_seconds_vs_lru_40": 0.703, "decide_us_10k": 2614}


def test_the_table_has_what_was_measured_and_says_loudly_what_was_not() -> None:
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(table(TITLE, about(SMALL), GOALS, FOUND))
    text = console.export_text()
    assert "so much" in text
    assert "0.703" in text
    assert text.count("NOT MEASURED") == len(KEYS) - 2


def test_a_part_that_cannot_be_measured_here_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def not_here(*_: object) -> Found:
        raise NotHereError("there is no Triton")

    monkeypatch.setattr(bench, "PARTS", {"cold": not_here, "simulated": lambda *_: FOUND["simulated"]})
    assert list(measure(SMALL, ["cold", "simulated"])) == ["simulated"]
    said = capsys.readouterr().err
    assert "NOT MEASURED: COLD (there is no Triton)" in said
    assert "warm_vs_preloaded" in said


def test_what_is_simulated_is_measured_on_any_trace() -> None:
    found = simulated(SMALL)
    assert {"cold_seconds_vs_lru_40", "cold_seconds_vs_lru_60", "simulate_events_per_s"} <= set(found.figures)
    assert found.figures["cold_seconds_vs_bound"] >= 1
    assert any("optimum" in what for what, _ in found.lines)


@pytest.mark.parametrize("policy", ["cost-aware", "lru-idle"])
def test_decisions_are_measured_of_the_core_and_of_the_policy_alone(policy: str) -> None:
    assert decision_microseconds(policy, 50) > 0
    assert choice_microseconds(policy, 50) > 0


def test_it_runs_on_a_given_trace_and_ends_with_json(tmp_path: Path) -> None:
    write_trace(SMALL, tmp_path / "t.csv")
    done = run("--trace", str(tmp_path / "t.csv"), "--only", "simulated")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert list(found) == KEYS
    assert found["cold_seconds_vs_lru_40"] > 0
    assert found["decide_us_10k"] is None
    assert "NOT MEASURED: warm_vs_preloaded" in done.stderr


LIVE = {
    "warm": "warm_vs_preloaded",
    "cold": "cold_vs_triton",
    "stampede": "loads_per_stampede",
    "density": "density",
    "while-loading": "warm_p99_while_loading",
}
EXACT = {"stampede": 1, "density": QUICK.densities[0]}
"""What is the same on the slowest machine."""


@pytest.mark.thorough
@pytest.mark.parametrize(("part", "key"), LIVE.items())
def test_what_is_live_is_measured_with_real_parts(part: str, key: str) -> None:
    done = run("--quick", "--only", part)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    if found[key] is None and "CANNOT BE HAD HERE" in done.stderr:
        pytest.skip(f"NOT RUN: THE EVICTION POLICY'S LIVE FIGURES, BECAUSE A PART CANNOT BE HAD HERE ({done.stderr})")
    assert {name for name, value in found.items() if value is not None} == {key}, done.stderr
    assert found[key] > 0
    if part in EXACT:
        assert found[key] == EXACT[part]


@pytest.mark.parametrize("wrong", [["--trace", "none.csv"], ["--only", "nothing"]])
def test_wrong_input_is_a_message_and_no_traceback(wrong: list[str]) -> None:
    done = run(*wrong)
    assert done.returncode == 2
    assert wrong[1] in done.stderr
    assert "Traceback" not in done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([".", "contracts", "service", "proxy", "policies/eviction"])
    command = [sys.executable, "-m", "lab.bench.eviction", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
