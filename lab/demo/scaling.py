"""`make demo-scaling`: the real KEDA on a local control plane scales a pool of real Tritons through a wave of load.

The nodes are simulated: kwok reports every scheduled pod as running. For each pod of the pool this program runs a
Triton and its eviction policy, as a kubelet would.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tidegate_contracts import eviction_process, routing
from tidegate_contracts.eviction import EvictionSettings, Tuning
from tidegate_proxy.access.api_keys import new_key

from components.args import PRE_STOP_SECONDS
from lab.local_cluster import LocalCluster, crds
from lab.local_cluster.nodes import nodes_of
from lab.local_cluster.scaling import start_keda
from lab.local_plane.named_proxy import write_names
from lab.local_plane.policy import policy, triton_options, write_settings
from lab.local_plane.process import CannotBeHadError, Process, ProcessError, free_ports
from lab.local_plane.prometheus import Prometheus, prometheus
from lab.local_plane.proxy import proxy
from lab.local_plane.triton import triton
from lab.tools import ToolError
from rollout.render import render
from rollout.tools.running import repeating
from stacks.validate import read_definition

from .playing import Scene, claim, play, scene
from .show import Show
from .tables import write_proxy
from .visitor import BUSY, Visitor
from .zoo import Animal

DEFINITION = Path(__file__).with_name("scaling.yaml")
PROMETHEUS = "http://prometheus.monitoring:9090"  # The definition's address. The demo uses loopback.
POOL = "zoo-busy"
PROXY_POD = "inference-proxy-0"  # The name under which Prometheus sees the proxy.
MODELS = ("ant", "bee", "cat", "dog", "emu", "fox", "goat", "hare")
QUIET_CALLERS, WAVE_CALLERS = 4, 24
CALL_SECONDS = 0.05  # The time that a request occupies a replica's GPU.
MEBIBYTES = 64  # The memory of a model, with its process.
MOST_SECONDS = 300.0
LOOK_SECONDS = 1.0
TUNING = Tuning(tolerance_bytes=16 << 20, retry_most_seconds=10)
SCENES: list[Scene["ScaledPool"]] = []


@dataclass
class Pod:
    """A Triton and its eviction policy, in the order in which they end."""

    processes: tuple[Process, Process]
    address: tuple[str, int]  # Of Triton's HTTP side.
    metrics: tuple[str, str]
    stack: ExitStack = field(repr=False)
    deleted: float | None = None  # When it was deleted.


@dataclass
class Kubelet:
    """Runs the pool's pods. Only the main thread can call it: a process ends with the thread that started it."""

    root: Path
    cluster: LocalCluster
    namespace: str
    settings: EvictionSettings
    ports: Sequence[int]  # All replicas use the same ports, at different addresses.
    host: str  # The pool's DNS name.
    prometheus: Prometheus
    proxy_metrics: str
    pods: dict[str, Pod] = field(default_factory=dict)

    def serving(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.deleted is None]

    def sync(self) -> None:
        """Start scheduled pods, and end deleted ones. Raises ProcessError if a process has failed."""
        scheduled = {
            each["metadata"]["name"]
            for each in self.cluster.get("pods", namespace=self.namespace)
            if each["metadata"]["name"].startswith(f"{POOL}-")
            and each["spec"].get("nodeName")
            and "deletionTimestamp" not in each["metadata"]
        }
        before = len(self.serving()), len(self.pods)
        for name, pod in [*self.pods.items()]:
            if name not in scheduled and pod.deleted is None:
                pod.deleted = time.monotonic()
                self.publish()
            if pod.deleted is None:
                pod.processes[0].check()
            elif time.monotonic() > pod.deleted + PRE_STOP_SECONDS:
                self._end(name, pod)
        for name in sorted(scheduled - self.pods.keys()):
            self.pods[name] = self._start(name)
        if before != (len(self.serving()), len(self.pods)):
            self.publish()

    def publish(self) -> None:
        """Write the pool's addresses for DNS, and the targets of Prometheus."""
        write_names(self.root / "names" / "pools.json", {self.host: [pod.address for pod in self.serving()]})
        metrics = {address: name for name, pod in self.pods.items() for address in pod.metrics}
        self.prometheus.scrape(metrics | {self.proxy_metrics: PROXY_POD})

    def close(self) -> None:
        for pod in self.pods.values():
            for process in pod.processes:
                process.popen.terminate()
        for pod in self.pods.values():
            pod.stack.close()

    def _end(self, name: str, pod: Pod) -> None:
        running = [process for process in pod.processes if process.popen.poll() is None]
        if running:
            running[0].popen.terminate()
        else:
            pod.stack.close()
            del self.pods[name]

    def _start(self, name: str) -> Pod:
        host = f"127.0.0.{int(name.rpartition('-')[2]) + 1}"
        folder = self.root / "pods" / f"{name}.{time.monotonic_ns()}"
        stack = ExitStack()
        write_settings(folder, self.settings)
        repository = Path(self.settings.repository)
        server = stack.enter_context(triton(folder, repository, None, triton_options(folder), self.ports[:3], host))
        evicting = stack.enter_context(policy(folder, server, (self.ports[3], self.ports[4])))
        metrics = f"{host}:{server.metrics_port}", evicting.admin
        return Pod((server.process, evicting.process), (host, self.ports[0]), metrics, stack)


@dataclass
class ScaledPool:
    """A control plane with KEDA, a proxy, the pool's pods, and callers that retry as `busy` responses specify."""

    kubelet: Kubelet
    visitor: Visitor
    wave: ExitStack = field(default_factory=ExitStack)
    calls: int = 0
    lost: list[str] = field(default_factory=list)

    def wanted(self) -> int:
        return int(self.kubelet.cluster.get("statefulset", POOL, self.kubelet.namespace)["spec"].get("replicas", 1))

    def keda_is_ready(self) -> bool:
        found = self.kubelet.cluster.get("scaledobject", POOL, self.kubelet.namespace).get("status", {})
        return any(each["type"] == "Ready" and each["status"] == "True" for each in found.get("conditions", ()))

    def call(self, model: str) -> None:
        """Call a model until the response is not `busy`, and count the call."""
        while (reply := self.visitor.call(model)).status == BUSY and reply.retry_after is not None:
            time.sleep(reply.retry_after)
        self.calls += 1
        if reply.status != 200:
            self.lost.append(f"a call of {model} got {reply.status}: {reply.why}")

    @contextmanager
    def callers(self, number: int, models: Sequence[str], pause: float = 0.0) -> Iterator[None]:
        """Run `number` callers, with a pause of seconds between calls, until the block ends."""
        works = [partial(self.call, models[place % len(models)]) for place in range(number)]
        with repeating(*works, pause=pause, meanwhile=self.step):
            yield

    def step(self) -> int:
        """Start and end pods once. Return the desired number of replicas."""
        self.kubelet.sync()
        time.sleep(LOOK_SECONDS)
        return self.wanted()

    def until(self, what: str, holds: Callable[[int], object]) -> float:
        """Step until something holds for the desired replicas. Return the seconds. Raises NotSoError."""
        begun = time.monotonic()
        while not holds(self.step()):
            claim(time.monotonic() - begun < MOST_SECONDS, f"{what}: not within {MOST_SECONDS:.0f} s")
        return time.monotonic() - begun


@contextmanager
def scaled_pool(root: Path) -> Iterator[ScaledPool]:
    """Run the pool in a directory until the block ends. Raises CannotBeHadError and ProcessError."""
    with ExitStack() as stack:
        seen = stack.enter_context(prometheus(root / "prometheus", namespace="tidegate-demo"))
        definition = root / DEFINITION.name
        definition.write_text(DEFINITION.read_text("utf-8").replace(PROMETHEUS, seen.url), "utf-8")
        read = read_definition(definition)
        (demo,) = read.stacks
        objects = render(demo, read).objects
        ports, key = free_ports(5), new_key()
        moved = partial(_moved, ports=ports)
        table = write_proxy(root / "proxy", objects, key, moved)
        names = root / "names" / "pools.json"
        names.parent.mkdir()
        write_names(names, {})
        settings = {"environment": table.environment, "api_keys": "true", "request_timeout_seconds": "60"}
        served = stack.enter_context(proxy(root / "proxy", settings=settings, names=names))
        try:
            nodes = nodes_of(demo.data_plane, [demo])
            cluster = stack.enter_context(LocalCluster.start(root / "cluster", nodes=nodes, aggregates=True))
            start_keda(cluster)
        except (ProcessError, ToolError) as error:
            raise CannotBeHadError(f"a control plane with KEDA: {error}") from None
        host = table.servers[0].pools[0].host
        evicting = _eviction_settings(objects, _repository(root))
        kubelet = Kubelet(root, cluster, demo.namespace, evicting, ports, host, seen, served.admin)
        stack.callback(kubelet.close)
        kubelet.publish()
        crds.install(cluster, objects)
        cluster.apply(objects)
        yield ScaledPool(kubelet, Visitor([served.http], key))


def _moved(pool: routing.Pool, ports: Sequence[int]) -> routing.Pool:
    http, grpc, _, lease, _ = ports
    return pool.model_copy(update={"http_port": http, "grpc_port": grpc, "lease_port": lease})


def _eviction_settings(objects: Sequence[Mapping[str, Any]], repository: Path) -> EvictionSettings:
    (data,) = (each["data"] for each in objects if each["metadata"]["name"] == f"{POOL}-eviction" and "data" in each)
    rendered = EvictionSettings.model_validate_json(data[eviction_process.SETTINGS_FILE])
    return rendered.model_copy(update={"repository": str(repository), "tuning": TUNING})


def _repository(root: Path) -> Path:
    repository, gpu = root / "models", root / "gpu"
    gpu.mkdir()
    for name in MODELS:
        model = Animal(name, MEBIBYTES, factor=1).model()
        replace(model, parameters={**model.parameters, "seconds": CALL_SECONDS, "gpu": gpu}).write(repository)
    return repository


def perform(pool: ScaledPool, show: Show) -> None:
    """Wait for the first replica, then play all scenes while a few callers call it."""
    pool.until("there is a replica", lambda _: pool.kubelet.serving())
    with pool.callers(QUIET_CALLERS, MODELS[:QUIET_CALLERS], 0.5), pool.wave:
        play(pool, show, SCENES, pool.kubelet.sync)


@scene(SCENES, "KEDA queries a Prometheus that scrapes the real Triton, its eviction policy and the proxy.")
def _quiet(pool: ScaledPool) -> str:
    """Keep one replica under little load."""
    seconds = pool.until("KEDA is ready", lambda _: pool.keda_is_ready())
    for _ in range(20):
        claim((wanted := pool.step()) == 1, f"KEDA requested {wanted} replicas of {POOL} although there is no load")
    return f"KEDA was ready after {seconds:.0f} s, and keeps one replica."


@scene(SCENES, "Queue time and full memory raise the pool from 1 to 3 replicas, one at a time.")
def _load(pool: ScaledPool) -> str:
    """Scale up in a wave of load."""
    pool.wave.enter_context(pool.callers(WAVE_CALLERS, MODELS))
    serving = pool.kubelet.serving
    wanted = pool.until("KEDA requests a second replica", lambda found: found == 2)
    second = wanted + pool.until("the second replica serves", lambda _: len(serving()) == 2)
    third = second + pool.until("a third replica serves", lambda _: len(serving()) == 3)
    return (
        f"After {wanted:.0f} s of load KEDA requested a second replica. It served at {second:.0f} s, and a third one "
        f"at {third:.0f} s."
    )


@scene(SCENES, "Replicas stop one after the other when the load of the last two minutes needs fewer. No call is lost.")
def _ebb(pool: ScaledPool) -> str:
    """Scale down after the wave."""
    pool.wave.close()
    first = pool.until("KEDA stops one replica", lambda found: found == 2)
    last = first + pool.until("KEDA stops another one", lambda found: found == 1)
    pool.until("their processes have ended", lambda _: len(pool.kubelet.pods) == 1)
    claim(not pool.lost, f"{len(pool.lost)} of {pool.calls} calls were lost, such as {pool.lost[:1]}")
    return f"One stopped {first:.0f} s after the wave, another at {last:.0f} s. Of {pool.calls:,} calls none was lost."
