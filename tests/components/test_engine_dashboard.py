"""Panels and alerts of engines, with a real Prometheus and the metrics of a real Dynamo, whose engine needs no GPU."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import urllib3

from components.alert_rules import alert_rules
from components.dashboards import Dashboard
from components.naming import Naming
from components.openai.relay import PROGRAM
from lab.local_plane.dynamo import Dynamo, dynamo
from lab.local_plane.process import HOST, free_ports
from lab.local_plane.prometheus import NAMESPACE, Prometheus, prometheus
from stacks.definition.environment import Objectives
from tests.proxy.rigs.pytest_rigs import not_run

from .dashboards import ENGINES, queries, query_of

pytestmark = pytest.mark.thorough
MODEL, POD = "chat-v3", "chat-blue-0"
PANELS = {panel["title"]: queries(panel) for panel in Dashboard("engine").panels}


def called(server: Dynamo) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "word1 word2"}], "max_tokens": 100}
    url = f"http://{server.http}/v1/chat/completions"
    assert urllib3.request("POST", url, json=body, timeout=30.0).status == 200


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, str]]:
    """A Prometheus that has read a replica of Dynamo through the relay for some seconds, and the text that it read."""
    root = tmp_path_factory.mktemp("engine")
    with not_run("A REAL DYNAMO"), dynamo(root / "dynamo", [MODEL]) as server:
        (port,) = free_ports(1)
        addresses = [f"http://{HOST}:{each}/metrics" for each in (server.http_port, server.system_ports[MODEL])]
        relay = subprocess.Popen([sys.executable, "-c", PROGRAM, f"{HOST}:{port}", *addresses])
        try:
            rules = alert_rules(Naming("demo", NAMESPACE), Objectives())
            with prometheus(root / "prometheus", {f"{HOST}:{port}": POD}, rules=rules) as there:
                end = time.monotonic() + 60
                while not there.ask("query", query="rate(dynamo_frontend_output_tokens_total[10s]) > 0")["result"]:
                    called(server)
                    assert time.monotonic() < end
                yield there, urllib3.request("GET", f"http://{HOST}:{port}/metrics").data.decode()
        finally:
            relay.kill()
            relay.wait()


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_shows_a_real_engine(seen: tuple[Prometheus, str], title: str) -> None:
    expressions = [query_of(expression, rate="10s") for expression in PANELS[title]]
    found = [each for query in expressions for each in seen[0].ask("query", query=query)["result"]]
    assert found, expressions
    assert {each["metric"]["pod"] for each in found} == {POD}
    assert any(float(each["value"][1]) == float(each["value"][1]) for each in found), "at least one number"


def test_its_metrics_have_the_names_in_the_queries(seen: tuple[Prometheus, str]) -> None:
    names = ENGINES | {"dynamo_frontend_inflight_requests"}
    exported = {line.partition("{")[0] for line in seen[1].splitlines()}
    of_the_mocker = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}
    assert {name for name in names if name.startswith("dynamo_")} | of_the_mocker <= exported


def test_prometheus_accepts_every_line_and_no_alert_fires(seen: tuple[Prometheus, str]) -> None:
    there = seen[0]
    [target] = there.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert there.ask("query", query="tidegate_engine_up")["result"][0]["value"][1] == "1"
    firing = there.ask("query", query='ALERTS{alertname=~"TidegateEngine.*"}')["result"]
    assert not firing, json.dumps(firing)
