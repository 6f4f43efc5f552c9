"""A real control plane on this machine, with simulated nodes."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from lab import tools
from lab.local_plane.process import Process, free_ports, running

from .control_plane import FRONT_PROXY, KEY, PROGRAMS, ClusterError, ControlPlane, Network, write_stages

READY_SECONDS = 180
LOOK_SECONDS = 0.3  # The pause between readiness checks. Each runs kubectl, which slows down the start.


@dataclass
class LocalCluster(ControlPlane):
    """A running control plane: etcd, API server, controller manager, scheduler, and kwok, which simulates nodes.

    >>> with LocalCluster.start(Path("/tmp/some-folder"), nodes=[cpu_node("cpu-1")]) as cluster:
    ...     cluster.kubectl("get", "nodes").stdout
    """

    prefix: tuple[str, ...] = ()  # A command prefix for kubectl that reaches the cluster.
    processes: dict[str, Process] = field(default_factory=dict, repr=False)
    _stack: ExitStack = field(default_factory=ExitStack, repr=False)

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        name: str = "local",
        nodes: Sequence[Mapping[str, Any]] = (),
        network: Network | None = None,
        aggregates: bool = False,
    ) -> Self:
        """Start a cluster in an empty directory, and return when it and its nodes are ready.

        `name` is the context in its kubeconfig. The cluster ends with the thread that started it, even if this process
        is killed. With `aggregates` it forwards calls to APIs of other programs (`scaling`), which needs the package
        cryptography. Raises ClusterError if the directory is a link or not empty, and ProcessError.
        """
        if not sys.platform.startswith("linux"):
            raise ClusterError("A local cluster needs Linux: run this in a Linux container or virtual machine.")
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            # `stop` removes everything in it.
            raise ClusterError(f"{folder} is not an empty directory. Start the cluster in a new directory.")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        for program in PROGRAMS:
            tools.path(program)
        network = network or Network()
        cluster = cls(folder.resolve(), name, network, network.port or free_ports(1)[0], aggregates)
        try:
            cluster._bring_up()
            if nodes:
                cluster._add_nodes(nodes)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def stop(self) -> None:
        """Kill every program, because no state is kept. Remove all files except the logs."""
        self._stack.close()
        for path in self.folder.iterdir():
            if path.name != "logs":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """Return the environment for commands on this cluster, without the user's own settings."""
        # A proxy for external hosts must not be used for a cluster on this machine.
        direct = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
        return os.environ | {
            "NO_PROXY": ",".join(filter(None, [direct, self.network.address])),
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
            "KUBERC": "off",
        }

    def kubectl(
        self,
        *arguments: str | Path,
        input: str | None = None,  # noqa: A002
        check: bool = True,
        timeout: float = 60,
        kubeconfig: Path | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl. Raises ClusterError if it fails, except with `check=False`."""
        command = [*self.prefix, str(_kubectl()), *map(str, arguments)]
        try:
            done = subprocess.run(
                command,
                input=input,
                stdin=subprocess.DEVNULL if input is None else None,
                capture_output=True,
                text=True,
                timeout=timeout,
                env=self.environment(kubeconfig),
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"kubectl {' '.join(map(str, arguments))}: no answer after {timeout:.0f} s.") from None
        if check and done.returncode:
            raise ClusterError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done

    def apply(self, objects: Iterable[Mapping[str, Any]], *arguments: str, timeout: float = 60) -> str:
        """Apply objects server-side in this order, and return kubectl's output. `arguments` go to kubectl."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})
        return self.kubectl("apply", "--server-side", *arguments, "-f", "-", input=text, timeout=timeout).stdout

    def get(self, kind: str, name: str | None = None, namespace: str | None = None, selector: str | None = None) -> Any:
        """Return one object by name, or a list of all: of a namespace, or of the whole cluster."""
        where = ["--namespace", namespace] if namespace else ["--all-namespaces"] if name is None else []
        which = [name] if name else ["--selector", selector] if selector else []
        found = json.loads(self.kubectl("get", kind, *which, *where, "--output", "json").stdout)
        return found if name else found["items"]

    def _add_nodes(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create nodes, and the other objects of the `nodes` module, and wait for them."""
        nodes = [item["metadata"]["name"] for item in objects if item["kind"] == "Node"]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})
        # Not server-side: that would omit a node's status with its resources.
        self.kubectl("apply", "-f", "-", input=text, timeout=READY_SECONDS)
        if nodes:
            limit = f"--timeout={READY_SECONDS}s"
            self.kubectl("wait", "--for=condition=Ready", limit, "node", *nodes, timeout=READY_SECONDS + 5)

    def run(self, program: str, command: Sequence[str], variables: Mapping[str, str] | None = None) -> Process:
        """Run a program in the cluster's directory until the cluster ends. Its output goes to `logs/<program>.log`."""
        # Without variables that change these programs or their connections.
        others = {key for key in os.environ if key.startswith(("ETCD_", "KUBE")) or key.lower().endswith("_proxy")}
        environment = {key: value for key, value in os.environ.items() if key not in others} | dict(variables or {})
        log = self.folder / "logs" / f"{program}.log"
        process = self._stack.enter_context(running(program, command, log, environment, folder=self.folder, kill=True))
        self.processes[program] = process
        return process

    def _bring_up(self) -> None:
        (self.folder / "logs").mkdir()
        self.write_tokens()
        write_stages(self.folder)
        if self.aggregates:
            from .certificates import Authority

            Authority().write(self.folder / FRONT_PROXY, "front-proxy")

        def start(program: str, ready: Callable[[], bool] = lambda: True) -> Process:
            process = self.run(program, self.command(program))
            process.wait_until(ready, READY_SECONDS)
            return process

        def answers(*command: str) -> bool:
            for process in self.processes.values():
                process.check()
            with suppress(ClusterError):  # After a timeout, the check is repeated.
                if self.kubectl(*command, check=False, timeout=20).returncode == 0:
                    return True
            time.sleep(LOOK_SECONDS)
            return False

        start("etcd", (self.folder / "etcd.sock").exists)
        server = start("kube-apiserver", (self.folder / KEY).exists)  # It writes its certificate before the key.
        self.write_kubeconfigs()
        server.wait_until(lambda: answers("get", "--raw", "/readyz"), READY_SECONDS)
        start("kube-scheduler")
        start("kwok")
        account = ("get", "serviceaccount", "default", "--namespace", "default")
        start("kube-controller-manager", lambda: answers(*account))


@cache
def _kubectl() -> Path:
    return tools.path("kubectl")  # Cached, because it runs programs on the PATH for their versions.
