import json
import re
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts.metrics import ENGINE, EVICTION, PROXY
from typer.testing import CliRunner

from cli.app import app
from components.dashboards import DASHBOARDS, Dashboard

from .dashboards import OTHERS, QUESTIONS, expressions, panels, queries, query_of
from .expected import objects
from .test_alert_rules import promtool, promtool_test, series_in, written

SERIES = {
    f"{each.series_name}{end}": each
    for each in [*PROXY.values(), *EVICTION.values(), *ENGINE.values()]
    for end in (("", "_bucket", "_sum", "_count") if each.kind == "histogram" else ("",))
}
PANELS = [pytest.param(dashboard, panel, id=f"{dashboard.name}: {panel['title']}") for dashboard, panel in panels()]
NAME = re.compile(
    r"\b(tidegate[_:][a-z_:0-9]+|nv_[a-z_]+|(?:vllm|sglang):[a-z_]+|dynamo_[a-z_]+|DCGM_[A-Z_]+|ALERTS)\{"
)
COUNTS = {"short", "reqps", "percentunit"}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
@pytest.mark.parametrize("namespace", [None, "inference-prod"])
def test_a_dashboard_keeps_clusters_apart_and_its_panels_do_not_overlap(
    dashboard: Dashboard, namespace: str | None
) -> None:
    read = json.loads(dashboard.written(namespace))
    assert (namespace or "Tidegate") in read["title"]
    targets = [target for panel in read["panels"] for target in panel.get("targets", ())]
    assert all("{{cluster}}" in each["legendFormat"] for each in targets if each.get("format") != "table")
    assert {each["datasource"]["uid"] for each in targets} == {"${datasource}"}
    places = [tuple(each["gridPos"][side] for side in "xywh") for each in read["panels"]]
    assert all(x + w <= 24 for x, _, w, _ in places)
    assert len({(x, y) for x, y, _, _ in places}) == len(places)
    assert dashboard.written(namespace) == dashboard.written(namespace), "writing one changes nothing"


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_a_panel_queries_metrics_in_their_unit_and_describes_a_remedy(
    dashboard: Dashboard, panel: dict[str, Any]
) -> None:
    assert len(panel["description"].split()) >= 10
    variables = {each["name"] for each in dashboard.content["templating"]["list"]}
    for target in panel["targets"]:
        expression = target["expr"]
        named = NAME.findall(expression)
        assert named
        assert {*named} <= SERIES.keys() | OTHERS
        assert {*re.findall(r"\$(\w+)", expression)} <= {"__rate_interval", "__range", *variables}
        for label in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")):
            assert label in expression or not re.search(r"\b(sum|max|min|avg|count) by", expression)
        for labels in re.findall(r"\b(?:sum|max|min|avg|count) by \(([^)]*)\)", expression):
            assert labels.startswith("cluster, namespace"), "environments and data planes are not mixed"
    unit = panel["fieldConfig"]["defaults"]["unit"]
    expressions = queries(panel)
    units = {SERIES[name].unit for each in expressions for name in NAME.findall(each)[:1] if name in SERIES}
    if "bytes" in units:
        assert unit in ("bytes", "percentunit")
    elif {"seconds", "Unix seconds"} & units:
        assert unit in ("s", "percentunit")
    elif units:
        assert unit in (COUNTS | {"bytes"} if "bytes" in " ".join(expressions) else COUNTS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_problem_of_an_engineer_on_call_has_a_panel(question: str) -> None:
    assert QUESTIONS[question] in {(dashboard.name, panel["title"]) for dashboard, panel in panels()}


def test_titles_of_a_dashboard_differ() -> None:
    found = [(dashboard.name, panel["title"]) for dashboard, panel in panels()]
    assert len({*found}) == len(found)


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"q{number}", "expr": query_of(expr)} for number, (_, expr) in enumerate(expressions())]
    assert not promtool("check", "rules", written(tmp_path, rules))


def test_the_memory_in_use_a_day_ago_shows_whether_tonights_batch_fits(tmp_path: Path) -> None:
    batch = "{0}x359 {1}x120 {0}x1200"  # From hour six to hour eight, and then not for a day.
    series = {
        'leases{pod="pod-0"}': (0, 2),
        'model_footprint_bytes{pod="pod-0",model="ant"}': (100, 100),
        'model_footprint_bytes{pod="pod-0",model="bee"}': (50, 50),
        'model_leases{pod="pod-0",model="ant"}': (0, 1),
        'model_leases{pod="pod-0",model="bee"}': (0, 1),
    }
    names = {f"tidegate_eviction_{name}": batch.format(*values) for name, values in series.items()}
    [panel] = [panel for _, panel in panels() if panel["title"] == "Will tonight's batch fit?"]
    wanted = [
        {"eval_time": "26h", "expr": f"sum({query_of(expr)})", "exp_samples": [{"labels": "{}", "value": value}]}
        for expr, value in zip(queries(panel)[1:], (0, 150), strict=True)
    ]
    assert not promtool_test(tmp_path, *series_in("inference", names), promql_expr_test=wanted)


def test_an_environment_has_them_as_config_maps_that_no_other_environment_has() -> None:
    maps = [each for each in objects("prod-all") if each["metadata"]["name"].startswith("tidegate-dashboard-")]
    assert {each["metadata"]["name"].rpartition("-")[2] for each in maps} == {each.name for each in DASHBOARDS}
    for each in maps:
        [(file, text)] = each["data"].items()
        namespace = each["metadata"]["namespace"]
        assert file == f"tidegate-{namespace}-{each['metadata']['name'].rpartition('-')[2]}.json"
        read = json.loads(text)
        assert (namespace in read["title"], "uid" in read) == (True, False)
        [chosen] = [every["current"]["value"] for every in read["templating"]["list"] if every["name"] == "namespace"]
        assert chosen == [namespace]
        assert each["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "team": "inference"}.items()


def test_each_is_written_as_a_file_and_an_error_names_the_directory(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["dashboards", str(tmp_path / "there")])
    assert done.exit_code == 0, done.stderr
    found = {file.name: json.loads(file.read_text("utf-8")) for file in (tmp_path / "there").iterdir()}
    assert {name: each["uid"] for name, each in found.items()} == {
        f"tidegate-{each.name}.json": f"tidegate-{each.name}" for each in DASHBOARDS
    }
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["dashboards", str(tmp_path / "file/below")])
    assert (done.exit_code, done.stdout, "Traceback" in done.stderr) == (1, "", False)
    assert "file/below: Not a directory" in done.stderr
