"""The walk through a model's life, with the real parts: its claims hold, and nothing is left of it."""

import json
from pathlib import Path

import pytest

from lab.demo.lifecycle import notebook
from lab.demo.lifecycle.scenes import SCENES
from lab.demo.lifecycle.world import DEVELOPER, world
from tests.proxy.rigs.pytest_rigs import not_run

from .test_demo_real import WALK_SECONDS, all_holds


@pytest.mark.thorough
def test_all_that_is_claimed_of_a_models_life_holds(tmp_path: Path) -> None:
    text = all_holds(tmp_path, 2 * WALK_SECONDS, SCENES, "lifecycle")
    for part in ("0 failed", "calls version 3 answered", "Killed 2 times, then finished", "found and named both"):
        assert part in text, text


@pytest.mark.thorough
def test_parts_that_are_killed_start_again_in_their_places_and_take_a_model_of_any_name(tmp_path: Path) -> None:
    with not_run("A REAL MLFLOW AND A REAL S3"), world(tmp_path) as made:
        for part, before in made.parts.items():
            before.popen.kill()
            before.popen.wait()
            made.start_again(part)
            assert made.parts[part].pid != before.pid
        made.registry.wait_until_ready()
        notebook.train(made.work / "mine", 1)
        tensors = ("--input", "FEATURES:FP32:4", "--output", "SCORE:FP32:1")
        name = "my_own-model.2"
        assert made.tidegate(DEVELOPER, "model", "new", name, "mine", *tensors).status == 0
        assert made.tidegate(DEVELOPER, "register", name).status == 0
        assert made.adopt() == [name]
        call = ("predict", name, "--environment", "dev", "--input", "FEATURES=[0, 0, 0, 0]")
        for words in (("deploy", name), call, ("status",)):
            said = made.tidegate(DEVELOPER, *words)
            assert said.status == 0, said.err


def test_the_golden_request_of_the_notebook_has_the_answer_of_its_weights(tmp_path: Path) -> None:
    file = tmp_path / "golden.json"
    notebook.golden(2, file)
    said = json.loads(file.read_text())
    assert said["outputs"]["SCORE"] == [notebook.score(notebook.weights(2))]
    assert said["request"]["inputs"][0]["data"] == list(notebook.CUSTOMER)
