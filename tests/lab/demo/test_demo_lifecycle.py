"""The walk through a model's life, with the real parts: its claims hold, and nothing is left of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.demo.__main__ import CANNOT
from lab.demo.lifecycle import notebook
from lab.demo.lifecycle.scenes import SCENES

from .test_demo_real import SHARED_MEMORY, WALK_SECONDS, demo


@pytest.mark.thorough
def test_all_that_is_claimed_of_a_models_life_holds(tmp_path: Path) -> None:
    file = tmp_path / "said.json"
    with demo(tmp_path, "lifecycle", "--json", str(file)) as (running, out):
        status = running.wait(2 * WALK_SECONDS)
    text = out.read_text()
    if status == CANNOT:
        pytest.skip(f"NOT RUN: {text.strip()}")
    assert status == 0, text
    said = json.loads(file.read_text())
    figures: dict[str, Any] = {each["name"]: each["figures"] for each in said["scenes"]}
    assert said["ok"]
    assert list(figures) == [scene.name for scene in SCENES]
    assert figures["promote"] == {"dev": figures["promote"]["prod"], "prod": figures["promote"]["prod"]}
    assert set(figures["replace"]) == {"1", "2"}
    assert set(figures["split"]) == {"2", "3"}
    assert figures["killed"]["kills"] == 2
    assert all(scene.title in text for scene in SCENES)
    assert not list(tmp_path.glob("tidegate-demo-*"))
    assert not list(SHARED_MEMORY.glob(f"tidegate_{running.pid}_*"))


def test_the_golden_request_of_the_notebook_has_the_answer_of_its_weights(tmp_path: Path) -> None:
    file = tmp_path / "golden.json"
    notebook.golden(2, file)
    said = json.loads(file.read_text())
    assert said["outputs"]["SCORE"] == [notebook.score(notebook.weights(2))]
    assert said["request"]["inputs"][0]["data"] == list(notebook.CUSTOMER)
