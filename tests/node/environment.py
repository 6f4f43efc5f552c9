"""An environment on the node: rendered from its definition, applied by kubectl, and watched by what its pods say."""

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, TypeVar

from tidegate_contracts import proxy_process, triton
from tidegate_proxy.access.api_keys import hash_line, new_key

from rollout.render import render
from stacks.validate import read_definition

from .keeper import ROOT
from .machine import Machine
from .settings import NODE

DEFINITION = ROOT / "tests" / "definitions" / "real-node.yaml"
NAMESPACE = "inference-trial"
SLICE = "nvidia.com/mig-1g.10gb"
SLICES = 3
OTHER_SLICE = "nvidia.com/mig-1g.20gb"
"""For the one on-demand server of the environment that Helm installs."""
# What GPU feature discovery says of a node, and the device plugin then offers.
GPU_LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config.state": "success",
}
PROXIES = "deployment/inference-proxy"
PATIENCE = 180
"""Seconds for what must come and has no time of its own: a slow machine, busy with other things, must not fail."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Event:
    """Something that a stand-in wrote down, and when."""

    at: datetime
    name: str
    details: Mapping[str, Any]


@dataclass
class Log:
    """What one start of a container writes, also after the kubelet has removed the file."""

    file: IO[str]
    _events: list[Event] = field(default_factory=list)
    _begun: str = ""

    def events(self) -> list[Event]:
        """Return everything until now."""
        self._begun += self.file.read()
        *lines, self._begun = self._begun.split("\n")
        for line in lines:
            *_, text = line.split(" ", 3)  # behind what the container runtime says of it
            if text.startswith("{"):
                details = json.loads(text)
                at = datetime.fromisoformat(details.pop("at"))
                self._events.append(Event(at, details.pop("event"), details))
        return self._events

    def lines(self) -> list[str]:
        """Return what a real process has written since the last look."""
        return [line.split(" ", 3)[3] for line in self.file.read().splitlines()]

    def names(self) -> list[str]:
        """Return the names of the events until now."""
        return [event.name for event in self.events()]

    def wait(self, name: str, seconds: float = PATIENCE) -> Event:
        """Return the first event of a name, as soon as it is there."""
        return until(
            lambda: next((event for event in self.events() if event.name == name), None), seconds, f"{name} in the log"
        )


@dataclass(frozen=True)
class Environment:
    """An environment of tests/definitions/real-node.yaml, the first one or another by its namespace; or of others."""

    machine: Machine
    namespace: str = NAMESPACE
    definition: Path = DEFINITION

    def bring_up(self) -> None:
        """Bring it up on a node whose GPU has as many slices as there are replicas."""
        node = self.machine
        node.kubectl("label", "--overwrite", "node", NODE, *(f"{key}={value}" for key, value in GPU_LABELS.items()))
        offered = {SLICE: str(SLICES), OTHER_SLICE: "1"}
        patch = json.dumps({"status": {"capacity": offered, "allocatable": offered}})
        node.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", f"--patch={patch}")
        self.install("statefulset/ondemand-small", "statefulset/preload-main")

    def install(self, *workloads: str) -> None:
        """Apply it with its callers' keys; wait for its proxies and these."""
        namespace, *others = self.objects()
        keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "api-keys", "namespace": self.namespace}}
        self.apply([namespace, {**keys, "stringData": {"tests": hash_line(self.key)}}, *others])
        self.wait_until_ready(PROXIES, *workloads)

    @property
    def key(self) -> str:
        """The API key of the principal `tests`."""
        file = self.machine.folder / "api-key"
        made_once(file, lambda: file.write_text(new_key()))
        return file.read_text()

    def objects(self, old: str = "", new: str = "") -> list[dict[str, Any]]:
        """Return the rendered objects of the definition, or of one in which a text is another."""
        file = self.definition
        if old:
            text = file.read_text()
            assert text.count(old) == 1, f"the definition has changed: {old!r} does not stand there once"
            file = self.machine.folder / f"changed-{time.monotonic_ns()}.yaml"
            file.write_text(text.replace(old, new))
        definition = read_definition(file)
        return list(render(definition.stacks[0], definition.lock, self.definition.name).objects)

    def apply(self, objects: list[dict[str, Any]]) -> str:
        """Apply objects as README.md says; return what kubectl says."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        return self.machine.kubectl("apply", "--server-side", "--filename=-", text=text).stdout

    def kubectl(self, *arguments: str, **settings: Any) -> str:
        """Run kubectl in the namespace; return what it prints."""
        return self.machine.kubectl(f"--namespace={self.namespace}", *arguments, **settings).stdout

    def wait_until_ready(self, *names: str) -> None:
        """Wait until workloads are as they were declared, or single pods ready."""
        workloads, pods = [name for name in names if "/" in name], [name for name in names if "/" not in name]
        for workload in workloads:
            self.kubectl("rollout", "status", workload, f"--timeout={PATIENCE}s", seconds=PATIENCE + 30)
        until(lambda: all(any(map(is_ready, self.pods(pod))) for pod in pods), PATIENCE, f"{pods} to be ready")

    def pods(self, prefix: str) -> list[dict[str, Any]]:
        """Return the pods whose names begin so, without those that are on their way out."""
        found = self.machine.get("pods", f"--namespace={self.namespace}")["items"]
        return [
            pod
            for pod in found
            if pod["metadata"]["name"].startswith(prefix) and "deletionTimestamp" not in pod["metadata"]
        ]

    def pod(self, name: str) -> dict[str, Any]:
        """Return one pod."""
        found: dict[str, Any] = self.machine.get("pod", name, f"--namespace={self.namespace}")
        return found

    def run(self, pod: str, container: str, *command: str, check: bool = True) -> str:
        """Run a command in a container; return what it prints, and what it complains about."""
        words = ["exec", pod, f"--container={container}", "--", *command]
        done = self.machine.kubectl(f"--namespace={self.namespace}", *words, check=check)
        return done.stdout + done.stderr

    def post(self, pod: str, container: str, url: str, *, check: bool = True) -> str:
        """Send a POST request from inside a pod."""
        return self.run(pod, container, "wget", "-q", "-O-", "--post-data={}", url, check=check)

    def proxy(self) -> str:
        """Return the name of a proxy that is ready, to look at things from there."""
        for pod in self.pods("inference-proxy"):
            if is_ready(pod):
                return str(pod["metadata"]["name"])
        raise AssertionError("no proxy is ready")

    def addresses(self) -> dict[str, list[str]]:
        """Return the addresses that the hosts of the routing table have in a proxy's eyes."""
        url = f"http://127.0.0.1:{proxy_process.ADMIN_PORT}/stand-in/addresses"
        found: dict[str, list[str] | None] = json.loads(self.run(self.proxy(), "proxy", "wget", "-q", "-O-", url))
        return {host: places or [] for host, places in found.items()}

    def answers(self, pod: Mapping[str, Any]) -> bool:
        """Tell whether a Triton answers on its own address, whatever names lead to it."""
        url = f"http://{pod['status']['podIP']}:{triton.HTTP_PORT}/v2/models/any/infer"
        said = self.post(self.proxy(), "proxy", url, check=False)
        return f'"served_by":"{pod["metadata"]["name"]}"' in said

    def log(self, pod: Mapping[str, Any], container: str, start: int = 0) -> Log:
        """Return the log of the first, or a later, start of a pod's container."""
        about = pod["metadata"]
        folder = self.machine.folder / "pod-logs" / f"{about['namespace']}_{about['name']}_{about['uid']}" / container
        file = folder / f"{start}.log"
        until(file.exists, PATIENCE, f"{file} to be there")
        return Log(file.open())

    def _lock(self, name: str) -> str:
        return f"alone-{self.namespace}-{name.replace('/', '-')}"

    @contextmanager
    def alone(self, *names: str) -> Iterator[None]:
        """Wait until these are ready, and let nobody else change them meanwhile: other processes run other tests."""
        with ExitStack() as locks:
            for name in sorted(names):  # in one order for everybody
                file = locks.enter_context((self.machine.folder / self._lock(name)).open("a"))
                fcntl.flock(file, fcntl.LOCK_EX)
            self.wait_until_ready(*names)
            yield


def until(find: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """Return what `find` finds as soon as it is something."""
    deadline = time.monotonic() + seconds
    while not (found := find()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.1)
    return found


def container_status(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """Return what the kubelet says about a container of a pod."""
    statuses = [*pod["status"].get("initContainerStatuses", []), *pod["status"].get("containerStatuses", [])]
    found: Mapping[str, Any] = next((one for one in statuses if one["name"] == container), {})
    return found


def condition(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of a pod; an empty one while nobody has said it."""
    found: Mapping[str, Any] = next((one for one in pod["status"].get("conditions", []) if one["type"] == kind), {})
    return found


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod takes part in its Services."""
    return condition(pod, "Ready").get("status") == "True"


def made_once(made: Path, make: Callable[[], object]) -> None:
    """Make something that several test processes share: the first one does, and writes this file; the others wait."""
    with made.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            make()
            made.touch()
