"""Dashboards hold to Grafana's schema, ask for what is measured, in its units, and say what to do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard as Schema
from tidegate_contracts.metrics import ENGINE, EVICTION, PROXY

from components.dashboards import DASHBOARDS
from components.dashboards.grafana import written
from components.dashboards.panel import Dashboard, Panel
from lab.local_plane.prometheus import installed

from .dashboards import OTHERS, QUESTIONS, asked, expressions, panels
from .expected import objects

ROOT = Path(__file__).resolve().parents[2]
SERIES = {
    f"{each.series_name}{end}": each
    for each in [*PROXY.values(), *EVICTION.values(), *ENGINE.values()]
    for end in (("", "_bucket", "_sum", "_count") if each.kind == "histogram" else ("",))
}
PANELS = [pytest.param(dashboard, panel, id=f"{dashboard.name}: {panel.title}") for dashboard, panel in panels()]
NAME = re.compile(
    r"\b(tidegate[_:][a-z_:0-9]+|nv_[a-z_]+|(?:vllm|sglang):[a-z_]+|dynamo_[a-z_]+|DCGM_[A-Z_]+|ALERTS)\{"
)
COUNTS = {"short", "reqps", "percentunit"}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
@pytest.mark.parametrize("namespace", [None, "inference-prod"])
def test_a_dashboard_is_what_grafanas_own_sdk_reads(dashboard: Dashboard, namespace: str | None) -> None:
    text = written(dashboard, namespace)
    said = json.loads(text)
    read = Schema.from_json(said)
    assert (read.title, len(read.panels or [])) == (said["title"], sum(1 + len(row) for row in dashboard.rows.values()))
    assert (namespace or "Tidegate") in said["title"]
    assert {each["name"] for each in said["templating"]["list"]} == {"datasource", *dashboard.variables}
    targets = [target for panel in said["panels"] for target in panel.get("targets", ())]
    assert all("{{cluster}}" in each["legendFormat"] for each in targets if each.get("format") != "table")
    places = [tuple(each["gridPos"][side] for side in "xywh") for each in said["panels"]]
    assert all(x + w <= 24 for x, _, w, _ in places)
    assert len({(x, y) for x, y, _, _ in places}) == len(places)


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_a_panel_asks_for_what_is_measured_in_its_unit_and_says_what_to_do(dashboard: Dashboard, panel: Panel) -> None:
    assert len(panel.description.split()) >= 10
    for query in panel.queries:
        named = NAME.findall(query.expression)
        assert named
        assert {*named} <= SERIES.keys() | OTHERS
        assert {*re.findall(r"\$(\w+)", query.expression)} <= {"__rate_interval", "__range", *dashboard.variables}
        for label in re.findall(r"\{\{(\w+)\}\}", query.legend):
            assert label in query.expression or not re.search(r"\b(sum|max|min|avg|count) by", query.expression)
        for labels in re.findall(r"\b(?:sum|max|min|avg|count) by \(([^)]*)\)", query.expression):
            assert labels.startswith("cluster, namespace"), "environments and data planes are not mixed"
    units = {
        SERIES[name].unit for query in panel.queries for name in NAME.findall(query.expression)[:1] if name in SERIES
    }
    if "bytes" in units:
        assert panel.unit in ("bytes", "percentunit")
    elif {"seconds", "Unix seconds"} & units:
        assert panel.unit in ("s", "percentunit")
    elif units:
        assert panel.unit in (
            COUNTS | {"bytes"} if "bytes" in " ".join(q.expression for q in panel.queries) else COUNTS
        )


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_question_of_who_is_on_call_is_answered_by_a_panel(question: str) -> None:
    assert QUESTIONS[question] in {(dashboard.name, panel.title) for dashboard, panel in panels()}


def test_titles_of_a_dashboard_differ() -> None:
    found = [(dashboard.name, panel.title) for dashboard, panel in panels()]
    assert len({*found}) == len(found)


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"q{number}", "expr": asked(expr)} for number, (_, expr) in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}), "utf-8")
    package = installed()
    command, environment = (
        [str(package.path("promtool")), "check", "rules", str(file)],
        os.environ | package.environment(),
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_an_environment_has_them_as_config_maps_that_no_other_environment_has() -> None:
    maps = [each for each in objects("prod-all") if each["metadata"]["name"].startswith("tidegate-dashboard-")]
    assert {each["metadata"]["name"].rpartition("-")[2] for each in maps} == {each.name for each in DASHBOARDS}
    for each in maps:
        [(file, text)] = each["data"].items()
        namespace = each["metadata"]["namespace"]
        assert file == f"tidegate-{namespace}-{each['metadata']['name'].rpartition('-')[2]}.json"
        said = json.loads(text)
        assert (namespace in said["title"], "uid" in said) == (True, False)
        [chosen] = [every["current"]["value"] for every in said["templating"]["list"] if every["name"] == "namespace"]
        assert chosen == [namespace]
        assert each["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "team": "inference"}.items()


def command(folder: Path) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-m", "cli", "dashboards", str(folder)]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_each_is_written_as_a_file_and_says_which_folder_it_cannot_write(tmp_path: Path) -> None:
    done = command(tmp_path / "there")
    assert done.returncode == 0, done.stderr
    found = {file.name: json.loads(file.read_text("utf-8")) for file in (tmp_path / "there").iterdir()}
    assert {name: said["uid"] for name, said in found.items()} == {
        f"tidegate-{each.name}.json": f"tidegate-{each.name}" for each in DASHBOARDS
    }
    (tmp_path / "file").write_text("")
    done = command(tmp_path / "file" / "below")
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (1, "", False)
    assert "file/below: Not a directory" in done.stderr


def test_a_figure_is_red_where_it_is_bad_and_nowhere_else() -> None:
    for dashboard in DASHBOARDS:
        of = {panel.title: panel for row in dashboard.rows.values() for panel in row}
        for made in json.loads(written(dashboard))["panels"]:
            if made["type"] != "stat":
                continue
            panel, defaults = of[made["title"]], made["fieldConfig"]["defaults"]
            steps = [(step["color"], step["value"]) for step in defaults["thresholds"]["steps"]]
            if panel.red_from is not None:
                assert steps == [("green", None), ("red", panel.red_from)]
            elif panel.red_below is not None:
                assert steps == [("red", None), ("green", panel.red_below)]
            else:
                assert steps == [("text", None)]
