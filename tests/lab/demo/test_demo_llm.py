from pathlib import Path

import pytest

from lab.demo.llm import SCENES

from .test_demo_real import WALK_SECONDS, all_holds


@pytest.mark.thorough
def test_all_that_is_claimed_of_language_models_holds(tmp_path: Path) -> None:
    text = all_holds(tmp_path, WALK_SECONDS, SCENES, "llm")
    assert "100 words, the first after" in text
