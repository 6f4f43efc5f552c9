"""Scaling as it is shown, with the real KEDA, metrics-server, Prometheus and Tritons: its claims hold."""

from pathlib import Path

import pytest

from lab.demo.__main__ import CANNOT
from lab.demo.scaling.scenes import SCENES

from .test_demo_real import demo, nothing_is_left

SECONDS = 3600  # What it may take at most, with the first build of KEDA.


@pytest.mark.thorough
def test_all_that_is_claimed_of_scaling_holds(tmp_path: Path) -> None:
    picture = tmp_path / "scaling.png"
    with demo(tmp_path, "scaling", "--picture", str(picture)) as (running, out):
        status = running.wait(SECONDS)
    text = out.read_text()
    if status == CANNOT:
        pytest.skip(f"NOT RUN: KEDA, METRICS-SERVER AND A CONTROL PLANE ({text.strip()})")
    assert status == 0, text
    for part in (f"All {len(SCENES)} hold", "3 replicas in", "nothing lost", "first call"):
        assert part in text, text
    assert all(scene.title in text for scene in SCENES)
    assert picture.read_bytes().startswith(b"\x89PNG")
    nothing_is_left(tmp_path, running.pid)
