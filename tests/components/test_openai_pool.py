import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tidegate_contracts import dynamo, openai, proxy_process
from tidegate_contracts.routing import RoutingTable

from components.evaluate import KubernetesObject
from lab.local_plane.process import answers, free_ports, running
from stacks.resolve import resolve
from stacks.validate import read_definition
from tests.charts.rendering import declared
from tests.proxy.http.upstream import answering, running_upstream

from .objects import containers, named, of_kind, template

_FILE = Path(__file__).parents[1] / "definitions/two-kinds.yaml"


@pytest.fixture(scope="module")
def objects() -> list[KubernetesObject]:
    definition = read_definition(_FILE)
    return declared(resolve(definition.stacks[0], definition.lock))


def container(objects: list[KubernetesObject], pool: str, name: str = "engine") -> dict[str, Any]:
    (found,) = (one for one in containers(named(objects, "StatefulSet", pool)) if one["name"] == name)
    return found


def variables(one: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in one["env"] if "value" in each}


def labels(item: KubernetesObject) -> dict[str, str]:
    found: dict[str, str] = item["metadata"]["labels"]
    return found


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        ("chat-blue", ["python3", "-m", "dynamo.vllm", "--model=/models/llama/3", "--served-model-name=llama-v3",
                        "--tensor-parallel-size=2", "--max-model-len=32768", "--gpu-memory-utilization=0.9"]),
        ("chat-green", ["python3", "-m", "dynamo.vllm", "--model=/models/llama/4", "--served-model-name=llama-v4",
                        "--tensor-parallel-size=2", "--max-model-len=32768", "--gpu-memory-utilization=0.9"]),
        ("code-qwen", ["vllm", "serve", "s3://models-of-dev/language/qwen/1", "--served-model-name=qwen-v1",
                       "--tensor-parallel-size=1", "--shutdown-timeout=120", "--load-format=runai_streamer",
                       "--port=8000"]),
        ("code-small", ["vllm", "serve", "s3://models-of-dev/language/qwen-small", "--served-model-name=qwen-small",
                        "--tensor-parallel-size=1", "--shutdown-timeout=120", "--load-format=runai_streamer",
                        "--port=8000"]),
        ("embed-main", ["python3", "-m", "sglang.launch_server", "--model-path=/models/embedder",
                        "--served-model-name=embedder", "--host=0.0.0.0", "--port=8000", "--enable-metrics",
                        "--tp-size=1", "--is-embedding"]),
        ("nim-main", ["nim-serve", "--tensor-parallel-size=1"]),
    ],
)  # fmt: skip
def test_an_engine_gets_its_model_and_served_name(objects: list[KubernetesObject], pool: str, words: list[str]) -> None:
    engine = container(objects, pool)
    assert [*engine.get("command", []), *engine["args"]] == words


def test_a_custom_server_gets_the_values_of_its_command_as_variables(objects: list[KubernetesObject]) -> None:
    found = variables(container(objects, "edge-main"))
    assert found["MODEL"] == "/models/phi/2"
    assert found["SERVED_NAME"] == openai.served_as("phi", 2)
    assert found["HTTP_PORT"] == str(openai.HTTP_PORT)


def test_a_dynamo_worker_finds_the_frontend_of_its_pod_without_the_cluster(
    objects: list[KubernetesObject],
) -> None:
    frontend, worker = container(objects, "chat-blue", "frontend"), container(objects, "chat-blue")
    for one in (frontend, worker):
        assert variables(one)["DYN_DISCOVERY_BACKEND"] == "file"
        assert variables(one)["DYN_FILE_KV"].startswith("/tmp/")
        assert {"name": "tmp", "mountPath": "/tmp"} in one["volumeMounts"]
    assert frontend["restartPolicy"] == "Always", "it ends after the worker, whose streams it carries"
    assert frontend["readinessProbe"]["httpGet"]["path"] == "/v1/models/llama-v3"
    assert "kube-api-access" not in json.dumps(template(named(objects, "StatefulSet", "chat-blue")))
    rights = of_kind(objects, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    assert {item["metadata"]["name"] for item in rights} == {"openai-agents"}, "whose frontends are shared"


@pytest.fixture(scope="module")
def table(objects: list[KubernetesObject]) -> RoutingTable:
    text = named(objects, "ConfigMap", "inference-proxy-routing")["data"][proxy_process.ROUTING_FILE]
    assert "grpcPort" not in json.loads(text)["servers"][0]["pools"][0]
    return RoutingTable.model_validate_json(text)


def test_the_routing_table_has_the_pool_of_each_version(table: RoutingTable) -> None:
    found = {model.pool: model for model in table.models if model.name == "llama"}
    assert {pool: [(each.version, each.weight) for each in model.versions] for pool, model in found.items()} == {
        "blue": [(3, 80)], "green": [(4, 20)]
    }  # fmt: skip
    assert {model.served_names for model in found.values()} == {("assistant", "meta/llama-3.1-8b-instruct")}


ENGINE = answering(lambda received: b"vllm:num_requests_running 3\n" if received.path == "/metrics" else b"secret")


@contextlib.contextmanager
def relaying(folder: Path, relay: dict[str, Any], *engines: int) -> Iterator[str]:
    """Run the relay as a process for engines at these ports, and yield its address."""
    (port,) = free_ports(1)
    addresses = [f"http://127.0.0.1:{engine}/metrics" for engine in engines]
    words = [sys.executable, *relay["command"][1:], f"127.0.0.1:{port}", *addresses]
    with running("the relay", words, folder / "relay.log", {"http_proxy": "http://192.0.2.1:9"}) as process:
        process.wait_until(lambda: answers(port, "/"))
        yield f"http://127.0.0.1:{port}"


def exported(address: str) -> dict[str, str]:
    text = urlopen(f"{address}/metrics").read().decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")


def test_the_relay_hands_out_only_the_metrics_of_an_engine(objects: list[KubernetesObject], tmp_path: Path) -> None:
    relay = container(objects, "code-qwen", "metrics")
    assert relay["args"] == [":8002", "http://127.0.0.1:8000/metrics"]
    with (
        contextlib.ExitStack() as engines,
        relaying(tmp_path, relay, engines.enter_context(running_upstream(ENGINE)).port) as address,
    ):
        assert exported(address) == {"vllm:num_requests_running": "3", "tidegate_engine_up": "1"}
        assert urlopen(f"{address}/v1/models").read() == b""
        engines.close()
        assert exported(address) == {"tidegate_engine_up": "0"}, "while it loads, or hangs"


def test_the_relay_exports_a_frontends_metrics_while_its_worker_has_none(
    objects: list[KubernetesObject], tmp_path: Path
) -> None:
    relay = container(objects, "chat-blue", "metrics")
    assert relay["args"] == [":8002", "http://127.0.0.1:8000/metrics", "http://127.0.0.1:9090/metrics"]
    with running_upstream(ENGINE) as engine, relaying(tmp_path, relay, engine.port, *free_ports(1)) as address:
        assert exported(address) == {"vllm:num_requests_running": "3", "tidegate_engine_up": "0"}


def test_shared_frontends_and_the_workers_of_every_pool_find_each_other(
    objects: list[KubernetesObject],
) -> None:
    (frontend,) = template(named(objects, "Deployment", "agents-frontends"))["spec"]["containers"]
    workers = {pool: container(objects, f"agents-{pool}") for pool in ("planner", "critic")}
    for one in (frontend, *workers.values()):
        assert variables(one)["DYN_DISCOVERY_BACKEND"] == "kubernetes"
        fields = {
            each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in one["env"] if "value" not in each
        }
        assert fields == {
            **{f"POD_{field.upper()}": f"metadata.{field}" for field in ("name", "namespace", "uid")},
            **{f"POD_{label.upper()}": f"metadata.labels['tidegate.dev/{label}']" for label in ("server", "pool")},
        }
        assert {"name": "kube-api-access", "mountPath": dynamo.TOKEN_ROOT, "readOnly": True} in one["volumeMounts"]
    assert variables(frontend)["DYN_NAMESPACE_PREFIX"] == "$(POD_SERVER)_"
    own = {variables(one)["DYN_NAMESPACE"] for one in workers.values()}
    assert own == {"$(POD_SERVER)_$(POD_POOL)"}, "workers of one namespace share their calls"
    for pool in workers:
        assert [one["name"] for one in containers(named(objects, "StatefulSet", f"agents-{pool}"))] == [
            "metrics",
            "engine",
        ]
        assert dynamo.SERVICE_LABELS.items() <= labels(named(objects, "Service", f"agents-{pool}-headless")).items()
        assert not dynamo.SERVICE_LABELS.keys() & labels(named(objects, "Service", f"agents-{pool}")).keys()


def test_calls_of_every_pool_are_led_to_the_frontends_that_they_share(objects: list[KubernetesObject]) -> None:
    text = named(objects, "ConfigMap", "inference-proxy-routing")["data"][proxy_process.ROUTING_FILE]
    table = RoutingTable.model_validate_json(text)
    pools = {pool.name: pool for server in table.servers if server.name == "agents" for pool in server.pools}
    assert {pool.host for pool in pools.values()} == {"agents-frontends.tidegate-dev.svc"}
    assert {pool.live_path for pool in pools.values()} == {"/live"}
    assert {model.name: model.pool for model in table.models if model.server == "agents"} == {
        "planner": "planner",
        "critic": "critic",
    }


def test_only_frontends_come_to_workers_and_workers_to_one_port_of_frontends(objects: list[KubernetesObject]) -> None:
    of_server = {"app.kubernetes.io/instance": "dev", "tidegate.dev/server": "agents"}
    frontends = {**of_server, "app.kubernetes.io/name": "openai", "tidegate.dev/pool": "frontends"}
    ways = {
        name: (spec["podSelector"]["matchLabels"], spec["ingress"], spec["egress"])
        for name in ("workers", "frontends")
        for spec in [named(objects, "NetworkPolicy", f"agents-{name}")["spec"]]
    }
    every, answers = [{"protocol": "TCP"}], [{"protocol": "TCP", "port": dynamo.RESPONSE_PORT}]

    def peer(labels: dict[str, str]) -> list[Any]:
        return [{"podSelector": {"matchLabels": labels}}]

    assert ways["workers"] == (
        of_server,
        [{"from": peer(frontends), "ports": every}],
        [{"to": peer(frontends), "ports": answers}],
    )
    assert ways["frontends"] == (
        frontends,
        [{"from": peer(of_server), "ports": answers}],
        [{"to": peer(of_server), "ports": every}],
    )
    assert named(objects, "NetworkPolicy", "reach-kubernetes")["spec"]["egress"]
