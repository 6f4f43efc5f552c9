import json
from pathlib import Path

import pytest

from lab.demo.lifecycle import notebook
from lab.demo.lifecycle.scenes import SCENES

from .test_demo_real import WALK_SECONDS, all_holds


@pytest.mark.thorough
def test_all_that_is_claimed_of_a_models_life_holds(tmp_path: Path) -> None:
    text = all_holds(tmp_path, 2 * WALK_SECONDS, SCENES, "lifecycle")
    for part in ("0 failed", "calls version 3 answered", "Killed 2 times, then finished", "found and named both"):
        assert part in text, text


def test_the_golden_request_of_the_notebook_has_the_answer_of_its_weights(tmp_path: Path) -> None:
    file = tmp_path / "golden.json"
    notebook.golden(2, file)
    known = json.loads(file.read_text())
    assert known["outputs"]["SCORE"] == [notebook.score(notebook.weights(2))]
    assert known["request"]["inputs"][0]["data"] == list(notebook.CUSTOMER)
