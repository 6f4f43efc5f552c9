"""The benchmark runs, and says what it should. Nothing here depends on time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from lab.bench.definition import Measured, ratios
from lab.bench.made import ENVIRONMENTS, POOLS, definition_text
from lab.bench.worker import STEPS
from stacks import reference
from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.validate import validate


@pytest.mark.parametrize("planes", [1, 3])
def test_made_definitions_are_valid_and_as_large_as_they_say(planes: int) -> None:
    definition = validate(parse(definition_text(planes), "made.yaml"), ImagesLock())
    assert len(definition.stacks) == planes * ENVIRONMENTS
    for stack in definition.stacks:
        assert sum(len(server.pools) for server in stack.platform.servers) == POOLS
        assert stack.platform.monitoring.labels["plane"] == stack.data_plane.name


def test_ratios_are_costs_per_object_against_the_smallest_definition() -> None:
    small = Measured(1, 2, 100, dict.fromkeys(STEPS, 1.0), 0.1)
    large = Measured(5, 10, 500, dict.fromkeys(STEPS, 10.0), 0.25)
    found = ratios([small, large])
    assert found == {**{f"{step}_per_object_5": 2.0 for step in STEPS}, "check_seconds_5": 0.25}


def test_a_quick_run_ends_with_the_ratios_as_json() -> None:
    call = [sys.executable, "-m", "lab.bench.definition", "--planes", "1,2", "--runs", "1", "--seconds", "0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([".", "contracts"])}
    done = subprocess.run(call, cwd=reference.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "run 1 of 1" in done.stderr
    *table, last = done.stdout.splitlines()
    for heading in ("data planes", "objects", *STEPS, "make check"):
        assert heading in "\n".join(table)
    found = json.loads(last)
    assert set(found) == {*(f"{step}_per_object_2" for step in STEPS), "check_seconds_2"}
    assert all(ratio > 0 for ratio in found.values())


@pytest.mark.parametrize("wrong", [["--planes", "0"], ["--planes", "many"], ["--runs", "0"]])
def test_a_wrong_option_is_a_message_and_no_traceback(wrong: list[str]) -> None:
    call = [sys.executable, "-m", "lab.bench.definition", *wrong]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([".", "contracts"])}
    done = subprocess.run(call, cwd=reference.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert wrong[0] in done.stderr
