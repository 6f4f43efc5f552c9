"""What the benchmark of engines and rollouts says about what it measured. Nothing here depends on time."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lab.bench.iac import ENVIRONMENT, REFERENCE, SIX_PLANES, STACK, Measured, ratios, table
from lab.bench.planes import pinned
from rollout.contexts import refuse_tags
from rollout.waves.plan import plan_of, stacks_of
from stacks import reference
from stacks.validate import read_definition

SECONDS = {
    "kubectl": (2.0, 1.0, 9.0),
    "helm up": (3.0,),
    "helm second up": (1.5,),
    "render": (1.0,),
    "helm template": (0.5,),
    "parallel": (10.0,),
    "serial": (15.0,),
}
FOUND = {name: Measured(name, seconds) for name, seconds in SECONDS.items()}
KEYS = {
    "helm_up_vs_kubectl": 1.5,
    "pulumi_up_vs_kubectl": None,
    "noop_vs_up": 0.5,
    "parallel_rollout_speedup": 1.5,
    "render_vs_helm_template": 2.0,
}


def test_ratios_are_of_medians_and_null_where_there_is_no_engine() -> None:
    assert ratios(FOUND) == KEYS
    assert ratios({**FOUND, "pulumi up": Measured("pulumi up", (8.0,))})["pulumi_up_vs_kubectl"] == 4.0


def test_the_table_shows_median_spread_and_what_each_is_compared_with() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table(FOUND))
    text = console.export_text()
    assert "2.00 s" in text
    assert "1.00 – 9.00 s" in text
    assert "× 1.50 of kubectl" in text


@pytest.mark.parametrize(("definition", "environment"), [(REFERENCE, STACK.split("-")[0]), (SIX_PLANES, ENVIRONMENT)])
def test_what_is_measured_may_be_brought_up(definition: Path, environment: str, tmp_path: Path) -> None:
    read = read_definition(pinned(definition, tmp_path))
    refuse_tags(read, list(stacks_of(read, environment).values()))


def test_the_rollout_that_is_measured_has_waves_of_one_two_and_three_planes() -> None:
    steps, _ = plan_of(list(stacks_of(read_definition(SIX_PLANES), ENVIRONMENT).values()))
    assert [len(step.planes) for step in steps] == [1, 2, 3]


@pytest.mark.parametrize("wrong", [["--runs", "0"], ["--rollouts", "many"]])
def test_a_wrong_option_is_a_message_and_no_traceback(wrong: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([".", "contracts"])}
    call = [sys.executable, "-m", "lab.bench.iac", *wrong]
    done = subprocess.run(call, cwd=reference.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert wrong[0] in done.stderr
