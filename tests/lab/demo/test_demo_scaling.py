from pathlib import Path

import pytest

from lab.demo.scaling import SCENES

from .test_demo_real import all_holds

SECONDS = 3600  # The timeout, with the first build of KEDA.


@pytest.mark.thorough
def test_all_that_is_claimed_of_scaling_holds(tmp_path: Path) -> None:
    text = all_holds(tmp_path, SECONDS, SCENES, "scaling")
    assert "none was lost" in text
