"""What a dashboard answers from a day of samples, in a real Prometheus."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.local_plane.prometheus import DATA, Prometheus, installed, prometheus
from tests.components.dashboards import asked, panels, queries
from tests.proxy.rigs.pytest_rigs import not_run

pytestmark = pytest.mark.thorough


@contextmanager
def seen(root: Path, samples: str) -> Iterator[Prometheus]:
    """Yield a Prometheus that has these samples, in OpenMetrics' text format."""
    package = installed()
    text = root / "samples.txt"
    text.write_text(samples, "utf-8")
    command = [str(package.path("promtool")), "tsdb", "create-blocks-from", "openmetrics", str(text)]
    made = subprocess.run(
        [*command, str(root / "prometheus" / DATA)], env=os.environ | package.environment(), capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with prometheus(root / "prometheus") as there:
        yield there


def test_whether_tonights_batch_fits_is_told_by_what_was_in_use_a_day_ago(tmp_path: Path) -> None:
    end = int(time.time()) // 60 * 60 - 120
    busy = range(end - 20 * 3600, end - 18 * 3600)  # the batch of the day before
    series = (
        ("tidegate_eviction_leases", "", 0, 2),
        ("tidegate_eviction_model_footprint_bytes", "ant", 100, 100),
        ("tidegate_eviction_model_footprint_bytes", "bee", 50, 50),
        ("tidegate_eviction_model_leases", "ant", 0, 1),
        ("tidegate_eviction_model_leases", "bee", 0, 1),
    )
    lines = [
        line
        for name, model, at_rest, then in series
        for line in (
            f"# TYPE {name} gauge",
            *(
                f'{name}{{namespace="inference",pod="pod-0",model="{model}"}} {then if at in busy else at_rest} {at}'
                for at in range(end - 26 * 3600, end + 1, 60)
            ),
        )
    ]
    [panel] = [panel for _, panel in panels() if panel["title"] == "Will tonight's batch fit?"]
    with not_run("PROMETHEUS"), seen(tmp_path, "\n".join([*lines, "# EOF", ""])) as there:
        now, a_day_ago = (
            there.ask("query", query=asked(expression), time=end)["result"][0]["value"][1]
            for expression in queries(panel)[1:]
        )
    assert (now, a_day_ago) == ("0", "150")
