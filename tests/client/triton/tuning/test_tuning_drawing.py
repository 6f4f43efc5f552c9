"""The plot."""

import subprocess
import sys
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.tuning import Measurement, Report, Setting, plot


@pytest.fixture
def report() -> Report:
    """Two lines of two points."""
    measurements = tuple(
        Measurement(
            setting=Setting(instances=instances, batch=1, concurrency=concurrency),
            inferences_per_second=90.0 * instances, p50_seconds=0.01, p90_seconds=0.02, p95_seconds=0.02,
            p99_seconds=0.03 * concurrency,
        )
        for instances in (1, 2)
        for concurrency in (1, 4)
    )  # fmt: skip
    return Report(model="sleeper", latency_limit_seconds=0.1, measurements=measurements, best=measurements[2])


@pytest.mark.parametrize(("name", "begin"), [("plot.png", b"\x89PNG\r\n"), ("plot.SVG", b"<?xml")])
def test_a_plot_is_drawn_the_same_each_time(tmp_path: Path, report: Report, name: str, begin: bytes) -> None:
    path = tmp_path / name
    plot(path, report)
    drawn = path.read_bytes()
    assert drawn.startswith(begin)
    plot(path, report)
    assert path.read_bytes() == drawn


def test_it_shows_a_line_for_each_configuration_and_the_limit_and_the_best(tmp_path: Path, report: Report) -> None:
    path = tmp_path / "plot.svg"
    plot(path, report)
    text = path.read_text("utf-8")
    for word in ("sleeper", "instances 1, batch 1", "instances 2, batch 1", "limit", "best", "p99 latency, ms"):
        assert f"<!-- {word}" in text, word


def test_a_name_or_folder_that_cannot_be_is_refused_before_anything_is_measured(tmp_path: Path, report: Report) -> None:
    with pytest.raises(UsageError, match=r"let its name end in \.png or \.svg"):
        plot(tmp_path / "plot.pdf", report)
    with pytest.raises(UsageError, match="there is no such folder"):
        plot(tmp_path / "no" / "plot.png", report)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\nfrom tidegate.triton.tuning.drawing import check_plot\n"
        f"check_plot(Path({str(tmp_path / 'plot.png')!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "./client[plot]" in ended.stderr
