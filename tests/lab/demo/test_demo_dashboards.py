"""No query of a dashboard is expensive with a thousand models."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts.metrics import EVICTION, PROXY, SECONDS

from lab.local_plane.prometheus import DATA, Prometheus, installed, prometheus
from tests.components.dashboards import TRITON, asked, expressions, panels, queries
from tests.proxy.rigs.pytest_rigs import not_run

pytestmark = pytest.mark.thorough
THOUSAND = 1000
PODS = 3
MINUTES = 30
MOST_SERIES = 25_000
"""Series that one query may touch with a thousand models in each of three pods: Grafana asks some ten at once."""


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, float]]:
    """A Prometheus that has seen a thousand models at each of three proxies, policies and Tritons."""
    root = tmp_path_factory.mktemp("thousand")
    with not_run("PROMETHEUS"):
        end = int(time.time()) // 60 * 60 - 120
        with seen(root, openmetrics(end)) as there:
            yield there, float(end)


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


def openmetrics(end: int) -> str:
    """Return what would have been scraped each minute: every metric with labels, a thousand values of `model`."""
    values = {
        "server": ["main"], "pool": ["small"], "protocol": ["http", "grpc"], "status": ["200", "503"], "type": ["busy"],
        "reason": ["no-room"], "principal": ["alice"], "source": ["api-key"], "how": ["reset"], "outcome": ["busy"],
        "of": ["callers"], "state": ["resident"], "kind": ["capacity", "resident"], "from": ["measured"],
        "files": ["near"], "part": ["prompt", "completion"],
        "file": ["routing"], "issuer": ["one"], "version": ["1"],
        "replica": [f"10.0.0.{pod}:8000" for pod in range(PODS)],
        "model": [f"model-{number}" for number in range(THOUSAND)],
    }  # fmt: skip
    triton = {name: ("gauge", ["model", "version"]) for name in sorted(TRITON)}
    families = triton | {
        each.series_name: (each.kind, [*each.labels]) for each in [*PROXY.values(), *EVICTION.values()]
    }
    lines = []
    for name, (kind, labels) in families.items():
        lines.append(f"# TYPE {name.removesuffix('_total')} {'gauge' if kind == 'gauge' else 'unknown'}")
        found = [""]
        for label in labels:
            found = [f'{each},{label}="{value}"' for each in found for value in values[label]]
        bounds = [*map(str, SECONDS["calls"]), "+Inf"]
        endings = [("_bucket", f',le="{bound}"') for bound in bounds] + [("_count", ""), ("_sum", "")]
        for pod in range(PODS):
            for ending, more in endings if kind == "histogram" else [("", "")]:
                for each in found:
                    series = f'{name}{ending}{{namespace="inference",pod="pod-{pod}"{each}{more}}}'
                    lines += [
                        f"{series} {minute} {end - 60 * (MINUTES - minute)}" for minute in range(0, MINUTES + 1, 5)
                    ]
    return "\n".join([*lines, "# EOF", ""])


@pytest.mark.parametrize(("name", "expression"), expressions(), ids=[name for name, _ in expressions()])
def test_no_query_is_expensive_with_a_thousand_models(
    thousand: tuple[Prometheus, float], name: str, expression: str, record_property: Any
) -> None:
    there, end = thousand
    chosen = (
        {"model": "model-7", "pod": "pod-1"} if not name.startswith(("platform", "proxy", "rollout", "mark")) else {}
    )
    said = asked(expression, rate="10m", span="30m", **chosen)
    began = time.monotonic()
    there.ask("query_range", query=said, start=end - 1800, end=end, step=30)
    record_property("seconds", round(time.monotonic() - began, 3))
    touched = 0
    for selector in re.findall(r"[a-zA-Z_:]+\{[^}]*\}", said):
        counted = there.ask("query", query=f"count({selector})", time=end)["result"]
        touched += int(counted[0]["value"][1]) if counted else 0
    record_property("series", touched)
    assert touched <= MOST_SERIES, f"{said} touches {touched} series"


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
