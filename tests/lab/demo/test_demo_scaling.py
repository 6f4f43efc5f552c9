"""Scaling as it is shown, with the real KEDA, metrics-server, Prometheus, Tritons and Dynamo: its claims hold."""

from pathlib import Path

import pytest

from lab.demo.scaling.scenes import SCENES

from .test_demo_real import all_holds

SECONDS = 3600  # What it may take at most, with the first build of KEDA.


@pytest.mark.thorough
def test_all_that_is_claimed_of_scaling_holds(tmp_path: Path) -> None:
    picture = tmp_path / "scaling.png"
    text = all_holds(tmp_path, SECONDS, SCENES, "scaling", "--picture", str(picture))
    for part in ("3 replicas in", "nothing lost", "room for all in", "first call", "2 engines in", "replicas stay"):
        assert part in text, text
    assert picture.read_bytes().startswith(b"\x89PNG")
