import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollout import health
from rollout.health import Target
from rollout.kubectl import Kubectl
from rollout.render import render
from rollout.waves import gate
from rollout.waves.gate import HealthCheck, await_health
from rollout.waves.runner import Interrupted
from stacks.command import CommandError
from stacks.definition.rollout import Alerts, Gate, MonitoringService, UrlProbe
from stacks.validate import read_definition
from tests.proxy.http.upstream import Received, replying, response, running_upstream

from .conftest import Patch

TARGET = Target("prod", (("Deployment", "inference-proxy"), ("StatefulSet", "small-main")), 80, False)
NO_CLUSTER = Kubectl("nowhere")

# ---- waiting ----


class Looking:
    """Replaces a data plane: reports one thing after the other, each for a second."""

    def __init__(self, gate: Gate, reports: Sequence[Sequence[str]]) -> None:
        self.gate, self.reports, self.time, self.checked_at = gate, reports, 0.0, -1.0

    def lacking(self) -> list[str]:
        assert self.time > self.checked_at, "checked twice at the same time"
        self.checked_at = self.time
        return [*self.reports[min(int(self.time), len(self.reports) - 1)]]

    def further(self) -> list[str]:
        return ["StatefulSet small-main: FailedCreate: exceeded quota: gpus"]

    def pause(self, seconds: float) -> bool:
        self.time += max(seconds, 0.001)
        return False


def waited(settings: Gate, reports: Sequence[Sequence[str]]) -> tuple[float, list[str]]:
    look: Any = Looking(settings, reports)
    shown: list[str] = []
    await_health(look, shown.append, look.pause, lambda: look.time)
    return look.time, shown


def settings(**keys: Any) -> Gate:
    return Gate.model_validate({"settleSeconds": 0, "timeoutSeconds": 60, **keys})


def test_it_waits_until_nothing_is_missing_and_stays_so_for_the_time_to_settle() -> None:
    assert waited(settings(), [[]]) == (0.0, [])
    seconds, shown = waited(settings(), [*[["Deployment a", "Deployment b"]] * 10, []])
    assert 10 <= seconds <= 15
    assert shown[0] == "waiting: Deployment a (and 1 more)"
    seconds, shown = waited(settings(settleSeconds=5), [[], [], [], ["flapping"], []])
    assert 4 + 5 <= seconds <= 4 + 5 + 2
    assert "waiting: flapping" in shown


def test_at_its_timeout_the_gate_reports_missing_objects_and_warnings_of_the_cluster() -> None:
    with pytest.raises(CommandError) as raised:
        waited(settings(), [["StatefulSet small-main: 0 of 1 pods are available"]])
    assert "StatefulSet small-main: 0 of 1 pods are available" in str(raised.value)
    assert "FailedCreate: exceeded quota: gpus" in str(raised.value)
    with pytest.raises(CommandError, match="not healthy for"):
        waited(settings(settleSeconds=5), [[], [], ["flapping"], ["flapping"]] * 20)


def test_it_stops_while_it_waits() -> None:
    look: Any = Looking(settings(), [["x"]])
    with pytest.raises(Interrupted):
        await_health(look, lambda _: None, lambda _: True)


# ---- workloads ----


class Cluster(Kubectl):
    def __init__(self, *objects: dict[str, Any], events: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__("there")
        self.__dict__.update(objects=list(objects), events=list(events))

    def find(self, kinds: Sequence[str], *_: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.__dict__["events" if list(kinds) == ["events"] else "objects"]
        return found


def workload(kind: str, name: str, replicas: int = 2, seen: int = 3, **status: Any) -> dict[str, Any]:
    """A healthy workload of generation 3, unless its status differs."""
    revisions = {"updateRevision": "2", "currentRevision": "2"} if kind == "StatefulSet" else {}
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), replicas)
    return {
        "kind": kind,
        "metadata": {"name": name, "generation": 3},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}},
        "status": {"observedGeneration": seen, **revisions, **counts, **status},
    }


def pod(name: str, of: str, ready: str = "True", **more: Any) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}], **more}
    return {"kind": "Pod", "metadata": {"name": name, "labels": {"app": of}}, "status": status}


proxy = partial(workload, "Deployment", "inference-proxy")
pool = partial(workload, "StatefulSet", "small-main")
PROXY, POOL = proxy(), pool()
GROWING = proxy(3, updatedReplicas=1, availableReplicas=2)
PODS = [pod("inference-proxy-1", "inference-proxy"), pod("inference-proxy-2", "inference-proxy")]


def lacking(*objects: dict[str, Any]) -> list[str]:
    return health.lacking(Cluster(*objects), TARGET)


UNREADY = pod("inference-proxy-3", "inference-proxy", ready="False")
LEAVING = {**UNREADY, "metadata": {**UNREADY["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([PROXY, POOL, *PODS], ""),
        ([PROXY, *PODS], "StatefulSet small-main does not exist"),
        ([PROXY, pool(replicas=0), *PODS], ""),
        ([PROXY, POOL, *PODS, LEAVING], ""),
        ([PROXY, POOL, *PODS, UNREADY], "Deployment inference-proxy: 2 of 3 pods are ready"),
        ([PROXY, POOL], "Deployment inference-proxy: no pod is ready"),
        ([PROXY, pool(seen=2), *PODS], "StatefulSet small-main: its controller has not seen the change yet"),
        ([PROXY, pool(availableReplicas=1), *PODS], "StatefulSet small-main: 1 of 2 pods are available"),
        ([PROXY, pool(currentRevision="1", updatedReplicas=1), *PODS], "StatefulSet small-main: 1 of 2 pods are new"),
        ([POOL, proxy(updatedReplicas=1), *PODS], "Deployment inference-proxy: 1 of its pods are still old"),
        ([POOL, GROWING, *PODS], "Deployment inference-proxy: 1 of 3 pods are new"),
        ([POOL, proxy(availableReplicas=0), *PODS], "Deployment inference-proxy: 0 of 2 pods are available"),
    ],
)
def test_a_missing_workload_is_one_line(objects: list[dict[str, Any]], reason: str) -> None:
    assert lacking(*objects) == ([reason] if reason else [])


def test_the_line_has_the_reason_of_a_pod() -> None:
    behind = pool(availableReplicas=0)
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    pending = pod("small-main-0", "small-main", conditions=[unschedulable])
    waiting = {"name": "triton", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    # Init containers count too, because the eviction policy is one, and starts before its Triton server.
    for statuses in ("containerStatuses", "initContainerStatuses"):
        pulling = pod("small-main-1", "small-main", ready="False", **{statuses: [waiting]})
        assert lacking(PROXY, behind, *PODS, pending, pulling) == [
            "StatefulSet small-main: 0 of 2 pods are available; pod small-main-0: Unschedulable: 0/3 nodes; "
            "pod small-main-1: container triton: ImagePullBackOff: no such image"
        ]


def test_warnings_about_our_workloads_are_reported_and_others_are_not() -> None:
    def event(kind: str, name: str, time: str, message: str) -> dict[str, Any]:
        about = {"kind": kind, "name": name}
        return {"involvedObject": about, "lastTimestamp": time, "reason": "FailedCreate", "message": message}

    cluster = Cluster(
        events=[
            event("StatefulSet", "small-main", "2026-01-01T00:00:02Z", "exceeded quota"),
            event("StatefulSet", "small-main", "2026-01-01T00:00:01Z", "older"),
            event("ReplicaSet", "inference-proxy-5d9c", "2026-01-01T00:00:01Z", "forbidden"),
            event("StatefulSet", "another", "2026-01-01T00:00:01Z", "of another workload"),
        ]
    )
    assert sorted(health.warnings(cluster, TARGET)) == [
        "ReplicaSet inference-proxy-5d9c: FailedCreate: forbidden",
        "StatefulSet small-main: FailedCreate: exceeded quota",
    ]


def test_the_checked_objects_are_the_rendered_ones(definition: Path) -> None:
    read = read_definition(definition)
    workloads = (("Deployment", "inference-proxy"), ("StatefulSet", "small-main"))
    assert health.target_of(render(read.stacks[1], read).objects) == Target("tidegate-prod", workloads, 80, False)
    spec = {"ports": [{"name": "https", "port": 443}, {"name": "grpc", "port": 8001}]}
    service = {"kind": "Service", "metadata": {"name": "inference-proxy", "namespace": "prod"}, "spec": spec}
    assert health.target_of([service]) == Target("prod", (), 443, True)


def test_a_cluster_that_does_not_respond_is_not_healthy() -> None:
    class Gone(Cluster):
        def find(self, *_: Any) -> list[dict[str, Any]]:
            raise CommandError("the cluster there\ncannot be reached")

    look = HealthCheck(settings(), Gone(), TARGET)
    assert look.lacking() == ["the workloads cannot be checked: the cluster there cannot be reached"]
    assert look.further() == ["its events cannot be read: the cluster there cannot be reached"]


# ---- probe and alerts, with a real server ----


@dataclass
class Server:
    """Returns the configured status and text of a path, and records requests."""

    url: str = ""
    requests: list[tuple[str, str, str | None, bytes]] = field(default_factory=list)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)

    def reply(self, sent: Received) -> bytes:
        self.requests.append((sent.line.split()[0], sent.path, sent.headers.get("authorization"), sent.body))
        status, text = self.answers.get(sent.path, (404, ""))
        return response(text.encode(), status, **({"location": text} if status == 302 else {}))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with running_upstream(replying(made.reply)) as running:
        made.url = f"http://{running.http}"
        yield made


Send = Callable[..., None]


@pytest.fixture
def send(server: Server) -> Send:

    def request(path: str, **keys: Any) -> None:
        gate.send(UrlProbe.model_validate({"kind": "url", "url": server.url + path, **keys}), NO_CLUSTER, TARGET)

    return request


@pytest.mark.parametrize("status", [200, 204, 302, 401, 404, 503])
def test_a_probe_is_answered_by_any_success_and_by_nothing_else(server: Server, send: Send, status: int) -> None:
    server.answers = {"/ready": (status, f"{server.url}/elsewhere" if status == 302 else ""), "/elsewhere": (200, "")}
    with nullcontext() if status < 300 else pytest.raises(CommandError, match=f"/ready responded with {status}"):
        send("/ready")
    assert server.requests == [("GET", "/ready", None, b"")]


def test_a_probe_with_a_body_is_posted_with_the_token_that_its_variable_holds(
    server: Server, send: Send, monkeypatch: Patch
) -> None:
    asks = partial(gate._request, f"{server.url}/infer", '{"inputs": []}', "PROBE_TOKEN")
    server.answers["/infer"] = 200, "{}"
    send("/infer", body="{}")
    assert server.requests.pop() == ("POST", "/infer", None, b"{}")
    monkeypatch.delenv("PROBE_TOKEN", raising=False)
    with pytest.raises(CommandError, match="the environment variable PROBE_TOKEN with the probe's token"):
        asks()
    monkeypatch.setenv("PROBE_TOKEN", "hidden")
    asks()
    assert server.requests == [("POST", "/infer", "Bearer hidden", b'{"inputs": []}')]
    server.answers["/infer"] = 401, ""
    with pytest.raises(CommandError, match=r"^(?!.*hidden).*/infer responded with 401$"):
        asks()


def test_a_probe_of_a_closed_port_reports_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(CommandError, match=rf"http://127\.0\.0\.1:{port}/ready does not respond: .*[Rr]efused"):
        gate.send(UrlProbe(kind="url", url=f"http://127.0.0.1:{port}/ready"), NO_CLUSTER, TARGET)


Alert = tuple[str, ...]  # Name, namespace, state and severity.


def labelled(name: str, namespace: str, _: str, severity: str = "critical") -> dict[str, str]:
    return {"alertname": name, "namespace": namespace, "severity": severity}


def prometheus(*found: Alert) -> str:
    return json.dumps({"data": {"alerts": [{"state": one[2], "labels": labelled(*one)} for one in found]}})


def alertmanager(*found: Alert) -> str:
    return json.dumps([{"status": {"state": one[2]}, "labels": labelled(*one)} for one in found])


PATHS = {"prometheus": "/api/v1/alerts", "alertmanager": "/api/v2/alerts?active=true&silenced=false&inhibited=false"}


@pytest.mark.parametrize("kind", ["prometheus", "alertmanager"])
def test_alerts_that_fire_in_the_namespace_count_and_others_do_not(server: Server, kind: Any) -> None:
    fires = {"prometheus": "firing", "alertmanager": "active"}[kind]
    write = {"prometheus": prometheus, "alertmanager": alertmanager}[kind]
    ours: list[Alert] = [
        ("ProxyDown", "prod", fires),
        ("ProxyDown", "prod", fires),
        ("Warned", "prod", fires, "warning"),
    ]
    others: list[Alert] = [("Slow", "prod", "pending"), ("Other", "dev", fires), ("Watchdog", "prod", fires)]
    others.append(("ForTheDay", "prod", fires, "info"))
    server.answers[PATHS[kind]] = 200, write(*ours, *others)
    alerts = Alerts(kind=kind, url=f"{server.url}/", ignore=("Watchdog",))
    assert gate.firing(alerts, NO_CLUSTER, "prod") == ["ProxyDown", "Warned"]


@pytest.mark.parametrize("answer", ["", "[]", "nonsense", '{"data": {"alerts": [{}]}}', '{"data": {"alerts": [1]}}'])
def test_an_invalid_response_about_alerts_is_ignored(server: Server, answer: str) -> None:
    server.answers["/api/v1/alerts"] = 200, answer
    with pytest.raises(CommandError, match="the response of prometheus is not the expected JSON"):
        gate.firing(Alerts(kind="prometheus", url=server.url), NO_CLUSTER, "prod")


def test_probe_and_alerts_are_checked_after_the_workloads(server: Server) -> None:
    asks = settings(
        probe={"kind": "url", "url": f"{server.url}/ready"}, alerts={"kind": "prometheus", "url": server.url}
    )
    behind = HealthCheck(asks, Cluster(PROXY, *PODS), TARGET)
    assert behind.lacking() == ["StatefulSet small-main does not exist"]
    assert server.requests == []
    well = HealthCheck(asks, Cluster(PROXY, POOL, *PODS), TARGET)
    assert well.lacking() == [f"the probe failed: {server.url}/ready responded with 404"]
    server.answers["/ready"] = 200, ""
    assert "the alerts cannot be read" in well.lacking()[0]
    server.answers["/api/v1/alerts"] = 200, prometheus(("ProxyDown", "prod", "firing"))
    assert well.lacking() == ["alert ProxyDown fires"]
    server.answers["/api/v1/alerts"] = 200, prometheus()
    assert well.lacking() == []


def test_a_service_is_queried_through_the_api_server() -> None:
    paths: list[str] = []

    class Answering(Cluster):
        def run(self, *arguments: str, **_: Any) -> Any:
            paths.append(arguments[-1])
            return type("Answer", (), {"stdout": prometheus()})

    service = MonitoringService(name="prometheus-operated", port=9090)
    gate.firing(Alerts(kind="prometheus", service=service), Answering(), "prod")
    assert paths == ["/api/v1/namespaces/monitoring/services/prometheus-operated:9090/proxy/api/v1/alerts"]


# ---- models ----

NOT_LOADED = (
    'tidegate_proxy_load_failed_timestamp_seconds{model="a",pool="main",replica="r",server="s",version="2"} 1e9'
)


class Metrics(Cluster):
    """A cluster with a proxy and an on-demand replica, with these metrics. None if they cannot be read."""

    def __init__(self, of_proxy: str | None, of_policy: str = "") -> None:
        on_demand = pod("s-main-0", "s-main")
        on_demand["metadata"]["labels"]["tidegate.dev/loading"] = "on-demand"
        proxy = pod("inference-proxy-1", "inference-proxy")
        proxy["metadata"]["labels"]["app.kubernetes.io/name"] = "inference-proxy"
        super().__init__(PROXY, POOL, proxy, on_demand)
        self.__dict__.update(texts={"inference-proxy-1:8082": of_proxy, "s-main-0:": of_policy})

    def run(self, *arguments: str, **_: Any) -> Any:
        text = next(text for name, text in self.__dict__["texts"].items() if name in arguments[-1])
        if text is None:
            raise CommandError("no answer")
        return SimpleNamespace(stdout=text)


def seen(cluster: Metrics, *known: str) -> list[str]:
    return HealthCheck(Gate(), cluster, TARGET, frozenset(known)).lacking()


def test_a_model_that_was_loaded_before_and_is_not_any_more_is_missing() -> None:
    assert seen(Metrics("# nothing\n")) == []
    [line] = seen(Metrics(NOT_LOADED))
    assert "model a version 2 of s/main" in line
    assert seen(Metrics(NOT_LOADED), "model a version 2 of s/main") == []
    [line] = seen(Metrics("", 'tidegate_eviction_model_load_failures_total{model="b"} 2.0\n'))
    assert "model b of s-main-0" in line
    assert seen(Metrics("", 'tidegate_eviction_model_load_failures_total{model="b"} 0.0\n')) == []


def test_a_replica_whose_models_no_proxy_has_seen_is_missing() -> None:
    [line] = seen(Metrics('tidegate_proxy_index_seen{pool="main",replica="s-main-1",server="s"} 0.0\n'))
    assert "s-main-1" in line


def test_a_cluster_that_shows_no_metrics_passes_and_the_reason_is_kept(monkeypatch: Patch) -> None:
    monkeypatch.setattr(gate, "_forwarded", unforwarded)
    check = HealthCheck(Gate(), Metrics(None), TARGET)
    for _ in range(5):
        assert check.lacking() == []
    assert check.blind[-1] == "no answer"
    assert len(check.blind) == 3


@contextmanager
def unforwarded(*_: object) -> Iterator[int]:
    raise CommandError("no answer")
    yield 0
