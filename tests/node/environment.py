"""An environment on the node: rendered from its definition, applied with kubectl, observed through logs."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from tidegate_contracts import proxy_process, triton
from tidegate_proxy.access.api_keys import hash_line, new_key

from rollout.render import render
from stacks.validate import read_definition
from tests.processes import until

from .images import ROOT
from .machine import Machine

DEFINITIONS = ROOT / "tests" / "definitions"
SLICE, SLICES = "nvidia.com/mig-1g.10gb", 3
"""The GPU resources of the node for on-demand servers: one for each replica of `trial`."""
PATIENCE = 180
"""Seconds for events without a separate timeout, long enough for a slow and busy machine."""

ASK = """
import json, sys, urllib.error, urllib.request
url, method, *headers = sys.argv[1:]
headers = dict(header.split(": ", 1) for header in headers)
request = urllib.request.Request(url, b"{}" if method == "POST" else None, headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.headers.get_content_type(), answer.read().decode()]))
"""


@dataclass(frozen=True)
class Event:
    at: datetime
    name: str
    details: Mapping[str, Any]


@dataclass
class Log:
    """The log of one start of a container, also after the kubelet has removed the file."""

    file: IO[str]
    _events: list[Event] = field(default_factory=list)
    _begun: str = ""

    def events(self) -> list[Event]:
        self._begun += self.file.read()
        *lines, self._begun = self._begun.split("\n")
        for line in lines:
            *_, text = line.split(" ", 3)  # Behind the container runtime's prefix.
            if text.startswith("{"):
                details = json.loads(text)
                at = datetime.fromisoformat(details.pop("at"))
                self._events.append(Event(at, details.pop("event"), details))
        return self._events

    def lines(self) -> list[str]:
        return [line.split(" ", 3)[3] for line in self.file.read().splitlines()]

    def names(self) -> list[str]:
        return [event.name for event in self.events()]

    def wait(self, name: str, seconds: float = PATIENCE) -> Event:
        return until(
            f"{name} in the log", lambda: next((event for event in self.events() if event.name == name), None), seconds
        )


@dataclass(frozen=True)
class Environment:
    """An environment of one of tests/definitions/real-*.yaml."""

    machine: Machine
    name: str
    definition: Path

    @property
    def namespace(self) -> str:
        return f"inference-{self.name}"

    def install(self) -> None:
        namespace, *others = self.objects()
        keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "api-keys", "namespace": self.namespace}}
        self.machine.apply([namespace, {**keys, "stringData": {"tests": hash_line(self.key)}}, *others])

    @property
    def key(self) -> str:
        file = self.machine.root / "api-key"
        if not file.exists():
            file.write_text(new_key())
        return file.read_text()

    def objects(self, old: str = "", new: str = "") -> list[dict[str, Any]]:
        """Return the rendered objects of the definition, optionally with a text replaced."""
        file = self.definition
        if old:
            text = file.read_text()
            assert text.count(old) == 1, f"the definition has changed: {old!r} does not stand there once"
            file = self.machine.root / f"changed-{time.monotonic_ns()}.yaml"
            file.write_text(text.replace(old, new))
        definition = read_definition(file)
        return list(render(definition.stacks[0], definition).objects)

    def kubectl(self, *arguments: str, **settings: Any) -> str:
        return self.machine.kubectl(f"--namespace={self.namespace}", *arguments, **settings).stdout

    def wait_until_ready(self) -> None:
        until(f"{self.namespace} to be ready", self._is_ready)

    def _is_ready(self) -> bool:
        items = self.machine.get("deployments,statefulsets,pods", namespace=self.namespace)
        ready = [one["metadata"]["name"] for one in items if one["kind"] == "Pod" and is_ready(one) and stays(one)]
        workloads = [one for one in items if one["kind"] != "Pod"]
        return bool(workloads) and all(
            one["status"].get("observedGeneration") == one["metadata"]["generation"]
            and one["status"].get("updatedReplicas", 0) == one["status"].get("replicas", 0) == one["spec"]["replicas"]
            and sum(name.startswith(f"{one['metadata']['name']}-") for name in ready) == one["spec"]["replicas"]
            for one in workloads
        )

    def pods(self, prefix: str) -> list[dict[str, Any]]:
        found = self.machine.get("pods", namespace=self.namespace)
        return [pod for pod in found if pod["metadata"]["name"].startswith(prefix) and stays(pod)]

    def pod(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.machine.get("pod", name, self.namespace)
        return found

    def run(self, pod: str, container: str, *command: str, check: bool = True) -> str:
        words = ["exec", pod, f"--container={container}", "--", *command]
        done = self.machine.kubectl(f"--namespace={self.namespace}", *words, check=check)
        return done.stdout + done.stderr

    def post(self, pod: str, container: str, url: str, *, check: bool = True) -> str:
        return self.run(pod, container, "wget", "-q", "-O-", "--post-data={}", url, check=check)

    def request(self, pod: str, container: str, url: str, *headers: str, method: str = "GET") -> tuple[int, str, str]:
        status, kind, body = json.loads(self.run(pod, container, "python", "-c", ASK, url, method, *headers))
        return status, kind, body

    def proxy(self) -> str:
        for pod in self.pods("inference-proxy"):
            if is_ready(pod):
                return str(pod["metadata"]["name"])
        raise AssertionError("no proxy is ready")

    def addresses(self) -> dict[str, list[str]]:
        url = f"http://127.0.0.1:{proxy_process.ADMIN_PORT}/stand-in/addresses"
        found: dict[str, list[str] | None] = json.loads(self.run(self.proxy(), "proxy", "wget", "-q", "-O-", url))
        return {host: places or [] for host, places in found.items()}

    def answers(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a Triton server responds on its address, whatever DNS has."""
        url = f"http://{pod['status']['podIP']}:{triton.HTTP_PORT}/v2/models/any/infer"
        response = self.post(self.proxy(), "proxy", url, check=False)
        return f'"served_by":"{pod["metadata"]["name"]}"' in response

    def log(self, pod: Mapping[str, Any], container: str, start: int = 0) -> Log:
        about = pod["metadata"]
        folder = self.machine.root / "pod-logs" / f"{about['namespace']}_{about['name']}_{about['uid']}" / container
        file = folder / f"{start}.log"
        until(f"{file} to be there", file.exists)
        return Log(file.open())


def container_status(pod: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    statuses = [*pod["status"].get("initContainerStatuses", []), *pod["status"].get("containerStatuses", [])]
    found: Mapping[str, Any] = next((one for one in statuses if one["name"] == container), {})
    return found


def condition(pod: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next((one for one in pod["status"].get("conditions", []) if one["type"] == kind), {})
    return found


def is_ready(pod: Mapping[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def stays(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


@contextmanager
def calls(environment: Environment, model: str, *arguments: str, name: str = "caller") -> Iterator[Log]:
    """Call a model through the proxy's Service a hundred times a second from a pod of another namespace."""
    node, url = environment.machine, f"http://inference-proxy.{environment.namespace}.svc/v2/models/{model}/infer"
    overrides = json.dumps({"spec": {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5}})
    of_pod = ["--image=localhost/caller:test", "--restart=Never", f"--overrides={overrides}"]
    node.kubectl("run", name, *of_pod, "--command", "--", "caller", url, *arguments)
    try:
        ready = ("--for=condition=Ready", f"pod/{name}", f"--timeout={PATIENCE}s")
        node.kubectl("wait", *ready, timeout=PATIENCE + 30)
        yield environment.log(node.get("pod", name, "default"), name)
    finally:
        node.kubectl("delete", "pod", name, "--now")


def served(log: Log) -> tuple[int, set[str]]:
    last = [event.details for event in log.events() if event.name == "answered"][-1:]
    return (last[0]["number"], set(last[0]["by"])) if last else (0, set())


def lost(log: Log) -> list[str]:
    reasons = [f"{event.at} {event.details['why']}" for event in log.events() if event.name == "lost"]
    return [*reasons[:10], f"{len(reasons)} of {served(log)[0] + len(reasons)}"] if reasons else []
