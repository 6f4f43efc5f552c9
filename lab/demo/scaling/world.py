"""Where it plays: a control plane with KEDA and metrics-server, a Prometheus, and pods that are real."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate_proxy.access.api_keys import new_key

from lab.local_cluster import ClusterError, LocalCluster, crds, scaling
from lab.local_cluster.nodes import nodes_of
from lab.local_plane.process import HOST, CannotBeHadError, free_ports
from lab.local_plane.prometheus import DATA, prometheus
from lab.local_plane.repository import Model
from lab.tools import ToolError
from rollout.render import render
from stacks.definition.openai import DynamoSettings, OpenaiServer
from stacks.stack import Stack
from stacks.validate import read_definition

from .pods import Kubelet, kubelet_metrics

DEFINITION = Path(__file__).with_name("inference.yaml")
PROGRAM = Path(__file__).parents[1] / "models" / "sharer.py"
PROMETHEUS = "http://prometheus.monitoring:9090"  # As the definition has it; here it is on loopback.
BUSY, RARE, CHAT = "zoo-busy", "zoo-rare", "chat-main"
PROXY = "inference-proxy"
MODELS = {BUSY: ("ant", "bee", "cat", "dog", "emu", "fox", "goat", "hare"), RARE: ("newt",), CHAT: ("parrot",)}
CALL_SECONDS = 0.05  # That an answer takes of a replica's GPU.
_MEBIBYTES = 43  # That a model holds, besides a process with Python and numpy: lab/demo/zoo.py.
VECTOR = ("TYPE_FP32", "-1")


@dataclass
class ScaledPlatform:
    """It runs. `kubelet` has to be looked at by the main thread, now and then."""

    root: Path
    cluster: LocalCluster
    kubelet: Kubelet
    key: str = field(repr=False)
    _seen: ExitStack = field(repr=False)  # Ends Prometheus.

    def ask(self, query: str) -> float | None:
        """Return what Prometheus answers, None where that is nothing, or there is none."""
        if self.kubelet.prometheus is None:
            return None
        found = self.kubelet.prometheus.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    @contextmanager
    def without_prometheus(self, seconds: int) -> Iterator[None]:
        """Have no Prometheus in the block; then one that knows nothing, and reads the pods every so many seconds."""
        before, self.kubelet.prometheus = self.kubelet.prometheus, None
        assert before is not None
        self._seen.close()
        yield
        shutil.rmtree(before.folder / DATA)
        anew = prometheus(before.folder, namespace=before.namespace, seconds=seconds, port=before.port)
        self.kubelet.prometheus = self._seen.enter_context(anew)
        self.kubelet.tell()

    def readiness(self, name: str) -> str:
        """Return whether KEDA finds a ScaledObject in order: True, False or Unknown."""
        found = self.cluster.get("scaledobject", name, self.kubelet.namespace).get("status", {}).get("conditions", ())
        return next((each["status"] for each in found if each["type"] == "Ready"), "Unknown")

    def queries(self, name: str) -> list[str]:
        """Return the queries of a ScaledObject, as it stands in the cluster."""
        found = self.cluster.get("scaledobject", name, self.kubelet.namespace)
        return [each["metadata"]["query"] for each in found["spec"]["triggers"]]

    def check(self) -> None:
        """Raise ProcessError when a process has ended by itself."""
        if self.kubelet.prometheus is not None:
            self.kubelet.prometheus.process.check()
        for pod in self.kubelet.pods.values():
            for process in pod.processes if pod.left is None else ():
                process.check()


@contextmanager
def scaled_platform(root: Path) -> Iterator[ScaledPlatform]:
    """Run it below a folder; it ends with the block. Raises CannotBeHadError and ProcessError."""
    with ExitStack() as stack:
        of_seen = stack.enter_context(ExitStack())
        seen = of_seen.enter_context(prometheus(root / "prometheus", namespace="tidegate-demo"))
        definition = root / DEFINITION.name
        definition.write_text(DEFINITION.read_text("utf-8").replace(PROMETHEUS, seen.url), "utf-8")
        read = read_definition(definition)
        (demo,) = read.stacks
        objects = render(demo, read).objects
        nodes = nodes_of(demo.data_plane, [demo])
        ports = {}
        for node in nodes:
            name = node["metadata"]["name"]
            ports[name] = free_ports(1)[0]
            # Where its kubelet is asked what pods use.
            node["status"]["addresses"] = [
                {"type": "InternalIP", "address": HOST},
                {"type": "Hostname", "address": name},
            ]
            node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": ports[name]}}
        cluster = _cluster(root / "cluster", nodes, stack)
        maps = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
        repositories = {pool: _repository(root, pool) for pool in (BUSY, RARE)}
        key = new_key()
        kubelet = Kubelet(root / "pods", cluster, demo.namespace, maps, repositories, _engines(demo), key, seen)
        stack.callback(kubelet.close)
        stack.enter_context(kubelet_metrics(kubelet, ports))
        crds.install(cluster, objects)
        cluster.apply(objects)
        yield ScaledPlatform(root, cluster, kubelet, key, of_seen)


def _cluster(folder: Path, nodes: list[dict[str, Any]], stack: ExitStack) -> LocalCluster:
    try:
        cluster = stack.enter_context(LocalCluster.start(folder, nodes=nodes, aggregates=True))
        stack.enter_context(scaling.keda(cluster, free_ports(5)))
        stack.enter_context(scaling.metrics_server(cluster, free_ports(1)[0]))
    except ToolError as error:
        raise CannotBeHadError(f"KEDA and metrics-server: {error}") from None
    except ClusterError as error:
        raise CannotBeHadError(f"a control plane with KEDA: {error}") from None
    return cluster


def _engines(stack: Stack) -> dict[str, tuple[str, ...]]:
    servers = (each for each in stack.platform.servers if isinstance(each, OpenaiServer))
    found = ((each, each.openai) for each in servers if isinstance(each.openai, DynamoSettings))
    return {f"{server.name}-{pool.name}": engine.extra_arguments for server, engine in found for pool in server.pools}


def _repository(root: Path, pool: str) -> Path:
    repository = root / "models" / pool
    said = {"mebibytes": _MEBIBYTES, "seconds": CALL_SECONDS, "gpu": root / "gpu"}
    (root / "gpu").mkdir(exist_ok=True)
    for name in MODELS[pool]:
        Model(name, PROGRAM, [("INPUT", *VECTOR)], [("OUTPUT", *VECTOR)], parameters=said).write(repository)
    return repository
