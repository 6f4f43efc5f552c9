"""Pods of simulated nodes made real: what a kubelet would run, runs as processes here, and is told of as one tells.

Nodes are kwok's, which takes every pod for running as soon as it is scheduled. A pod of Tritons is a Triton and its
policy at an address of loopback of their own, one of engines a Dynamo and its worker, and one of the proxy a proxy. A
pod that is deleted leaves the names at once, is asked to end after the pause that the components give it, and Triton
before its policy, as of a native sidecar, and a worker before its frontend.
"""

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tidegate_contracts import eviction_process, proxy_process, routing
from tidegate_contracts.eviction import EvictionSettings, Tuning
from tidegate_proxy.access.api_keys import hash_line

from components.args import PRE_STOP_SECONDS
from components.openai.relay import PROGRAM
from lab.local_cluster import LocalCluster
from lab.local_plane.dynamo import dynamo
from lab.local_plane.named_proxy import write_names
from lab.local_plane.policy import Policy, policy, triton_options, write_settings
from lab.local_plane.process import HOST, Process, free_ports, running
from lab.local_plane.prometheus import Prometheus
from lab.local_plane.proxy import Proxy, proxy, write_tables
from lab.local_plane.triton import Triton, triton

TUNING = Tuning(tolerance_bytes=16 << 20, retry_most_seconds=10)
CALLER = "visitor"
Object = Mapping[str, Any]


@dataclass
class Pod:
    """One that runs here."""

    name: str
    node: str
    container: str
    processes: tuple[Process, ...]
    scraped: tuple[str, ...]  # Hosts and ports of its metrics.
    stack: ExitStack = field(repr=False)
    host: str = HOST
    port: int = 0  # Of its HTTP API.
    proxy: Proxy | None = None
    policy: Policy | None = None
    triton: Triton | None = None
    left: float | None = None  # When it was deleted.
    spent: float = 0.0  # Processor seconds, as they were read last.


@dataclass
class Kubelet:
    """Runs the pods of a namespace; to be looked at by the main thread alone, for processes end with their thread."""

    root: Path
    cluster: LocalCluster
    namespace: str
    maps: Mapping[str, Object]  # The rendered ConfigMaps, by name.
    repositories: Mapping[str, Path]  # Of each pool of Tritons, by `<server>-<pool>`.
    engines: Mapping[str, Sequence[str]]  # Likewise of each pool of Dynamo: options of its workers.
    key: str = field(repr=False)
    prometheus: Prometheus | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    _ports: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Give every pool its ports, which its replicas have in common."""
        self._ports = {pool: free_ports(5) for pool in self.repositories}
        (self.root / "names").mkdir(parents=True)
        self.tell()

    def of(self, prefix: str) -> list[Pod]:
        """Return the pods of a workload that take calls."""
        return [pod for name, pod in self.pods.items() if name.startswith(f"{prefix}-") and pod.left is None]

    def look(self) -> None:
        """Start pods that have come, and end those that have gone."""
        wanted = {
            each["metadata"]["name"]: each
            for each in self.cluster.get("pods", namespace=self.namespace)
            if each["spec"].get("nodeName") and "deletionTimestamp" not in each["metadata"]
        }
        for name in self.pods.keys() - wanted.keys():
            if self.pods[name].left is None:
                self.pods[name].left = time.monotonic()
                self.tell()
        for pod in [pod for pod in self.pods.values() if pod.left is not None]:
            self._end(pod)
        for name in sorted(wanted.keys() - self.pods.keys()):
            self.pods[name] = self._start(name, wanted[name]["spec"]["nodeName"])
            self.tell()

    def close(self) -> None:
        """End all of them at once."""
        for pod in self.pods.values():
            for process in pod.processes:
                process.popen.terminate()
        for pod in self.pods.values():
            pod.stack.close()

    def _end(self, pod: Pod) -> None:
        """Ask the next process of a pod to end: Triton before its policy; a pod of which none is left is forgotten."""
        assert pod.left is not None
        if time.monotonic() < pod.left + PRE_STOP_SECONDS:
            return
        running = [process for process in pod.processes if process.popen.poll() is None]
        if running:
            running[0].popen.terminate()
        else:
            pod.stack.close()
            del self.pods[pod.name]
            self.tell()

    def _start(self, name: str, node: str) -> Pod:
        pool, _, number = name.rpartition("-")
        if pool in self.repositories:
            return self._start_replica(name, node, pool, int(number))
        if pool in self.engines:
            return self._start_engine(name, node, pool)
        root, stack = self.root / name, ExitStack()
        (root / "api-keys").mkdir(parents=True)
        (root / "api-keys" / CALLER).write_text(f"{hash_line(self.key)}\n", "utf-8")
        table, access = self._tables()
        write_tables(root, table, access)
        said = {"environment": table.environment, "api_keys": "true", "request_timeout_seconds": "60"}
        made = stack.enter_context(proxy(root, settings=said, names=self._names))
        return Pod(name, node, "proxy", (made.process,), (made.admin,), stack, proxy=made)

    def _start_replica(self, name: str, node: str, pool: str, number: int) -> Pod:
        stack, ports, folder = ExitStack(), self._ports[pool], self._new_folder(name)
        # Pools differ in ports, replicas in addresses.
        host = f"127.0.0.{number + 1}"
        said = self.maps[f"{pool}-eviction"]["data"][eviction_process.SETTINGS_FILE]
        settings = EvictionSettings.model_validate_json(said)
        repository = self.repositories[pool]
        write_settings(folder, settings.model_copy(update={"repository": str(repository), "tuning": TUNING}))
        server = stack.enter_context(triton(folder, repository, None, triton_options(folder), ports[:3], host))
        beside = stack.enter_context(policy(folder, server, (ports[3], ports[4])))
        scraped = (f"{host}:{server.metrics_port}", beside.admin)
        processes = (server.process, beside.process)
        return Pod(name, node, "triton", processes, scraped, stack, host, ports[0], policy=beside, triton=server)

    def _start_engine(self, name: str, node: str, pool: str) -> Pod:
        table, _ = self._tables()
        served = [model.name for model in table.models if f"{model.server}-{model.pool}" == pool]
        stack = ExitStack()
        folder, [port] = self._new_folder(name), free_ports(1)
        made = stack.enter_context(dynamo(folder, served, self.engines[pool]))
        told = [f"http://{HOST}:{each}/metrics" for each in (made.http_port, *made.system_ports.values())]
        command = [sys.executable, "-c", PROGRAM, f"{HOST}:{port}", *told]
        relay = stack.enter_context(running("metrics", command, folder / "metrics.log"))
        processes = (*made.workers.values(), made.process, relay)
        return Pod(name, node, "engine", processes, (f"{HOST}:{port}",), stack, port=made.http_port)

    def _new_folder(self, name: str) -> Path:
        """Return one each time: a pod that comes again has nothing of the one before."""
        return self.root / f"{name}.{len(list(self.root.glob(f'{name}.*'))) + 1}"

    def _tables(self) -> tuple[routing.RoutingTable, routing.AccessTable]:
        """Return the tables as they were rendered, but for the ports that pools have here."""
        (data,) = (each["data"] for each in self.maps.values() if proxy_process.ROUTING_FILE in each["data"])
        table = routing.RoutingTable.model_validate_json(data[proxy_process.ROUTING_FILE])
        servers = []
        for server in table.servers:
            pools = []
            for pool in server.pools:
                if f"{server.name}-{pool.name}" not in self._ports:
                    pools.append(pool)
                    continue
                http, grpc, _, lease, _ = self._ports[f"{server.name}-{pool.name}"]
                ports = {"http_port": http, "grpc_port": grpc, "lease_port": lease}
                pools.append(pool.model_copy(update=ports))
            servers.append(server.model_copy(update={"pools": tuple(pools)}))
        access = routing.AccessTable.model_validate_json(data[proxy_process.ACCESS_FILE])
        return table.model_copy(update={"servers": tuple(servers)}), access

    @property
    def _names(self) -> Path:
        return self.root / "names" / "pools.json"

    def tell(self) -> None:
        """Write what DNS says of the pools, and what Prometheus scrapes."""
        table, _ = self._tables()
        pools = {f"{server.name}-{pool.name}": pool for server in table.servers for pool in server.pools}
        addresses = {pool.host: [(pod.host, pod.port) for pod in self.of(name)] for name, pool in pools.items()}
        write_names(self._names, addresses)
        if self.prometheus is not None:
            self.prometheus.scrape({address: pod.name for pod in self.pods.values() for address in pod.scraped})


@contextmanager
def kubelet_metrics(kubelet: Kubelet, ports: Mapping[str, int]) -> Iterator[None]:
    """Tell what pods use, as kubelets do at /metrics/resource: for each node at its port, as long as the block lasts.

    The processor seconds are those of the real processes. https://kubernetes.io/docs/reference/instrumentation/node-metrics/
    """
    servers = [ThreadingHTTPServer((HOST, port), _handler(kubelet, node)) for node, port in ports.items()]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(kubelet: Kubelet, node: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = _said(kubelet, node).encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


def _said(kubelet: Kubelet, node: str) -> str:
    lines: list[str] = []
    total, now = 0.0, time.time()
    for pod in [pod for pod in list(kubelet.pods.values()) if pod.node == node]:
        alive = [process for process in pod.processes if process.popen.poll() is None]
        if not alive:
            continue
        pod.spent = max(pod.spent, sum(process.processor_seconds() for process in alive))
        held = sum(process.resident_bytes() for process in alive)
        labels = f'namespace="{kubelet.namespace}",pod="{pod.name}"'
        total += pod.spent
        at = int(now * 1000)
        for what, value in (("cpu_usage_seconds_total", pod.spent), ("memory_working_set_bytes", held)):
            lines.append(f'container_{what}{{container="{pod.container}",{labels}}} {value} {at}')
            lines.append(f"pod_{what}{{{labels}}} {value} {at}")
    lines.append(f"node_cpu_usage_seconds_total {total} {int(now * 1000)}")
    lines.append(f"node_memory_working_set_bytes {1 << 30} {int(now * 1000)}")
    return "".join(f"{line}\n" for line in lines)
