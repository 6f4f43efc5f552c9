"""A real control plane on this machine, with simulated nodes."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from lab import tools

from . import folder as place
from . import processes
from .control_plane import FRONT_PROXY, PROGRAMS, ClusterError, ControlPlane, Network, private, write_stages
from .folder import STATE, clean, free_port, locked, private_folder

READY_SECONDS = 180


@dataclass
class LocalCluster(ControlPlane):
    """A running control plane: etcd, API server, controller manager, scheduler, and kwok, which plays nodes.

    >>> with LocalCluster.start(Path("/tmp/some-folder"), nodes=[cpu_node("cpu-1")]) as cluster:
    ...     cluster.kubectl("get", "nodes").stdout
    """

    _children: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict, repr=False)

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        name: str = "local",
        nodes: Sequence[Mapping[str, Any]] = (),
        network: Network | None = None,
        outlives: bool = False,
        aggregates: bool = False,
    ) -> Self:
        """Start a cluster in a folder of its own, and return when it and its nodes are ready; raises ClusterError.

        `name` is the context in its kubeconfig. Unless it `outlives` this process, it ends with it, even if this
        process is killed. One that `aggregates` passes calls on to APIs that other programs serve (`scaling`), which
        takes the package cryptography. What an earlier, killed run left in the folder is ended and removed first. A
        folder behind a link, or with files that no cluster made, is refused.
        """
        processes.refuse_other_systems()
        folder = private_folder(folder)
        network = network or Network()
        with locked(folder):
            if running := processes.of(folder):
                if cls.running(folder):
                    ids = ", ".join(f"{program} {pid}" for program, pid in running.items())
                    raise ClusterError(
                        f"A local cluster runs already in {folder} (process ids: {ids}).\n"
                        "Stop that one first, or use another folder."
                    )
                processes.end(folder)
            place.mark(folder)
            clean(folder)
            for program in PROGRAMS:
                tools.path(program)
            with free_port(network) as port:
                cluster = cls(folder, name, network, port, aggregates)
                try:
                    cluster._bring_up(outlives)
                    if nodes:
                        cluster.add_nodes(nodes)
                    state = {"context": cluster.context, "port": port, "network": asdict(network)}
                    private(folder / STATE, json.dumps(state, indent=1))
                except BaseException:
                    processes.end(folder, [*cluster._children.values()])
                    raise
        return cluster

    @classmethod
    def running(cls, folder: Path) -> Self | None:
        """Return the cluster that runs in a folder, whatever started it; None when there is none, or not all of one."""
        if folder.is_symlink():
            return None
        try:
            folder = folder.resolve()
            state = json.loads((folder / STATE).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if {*PROGRAMS} - processes.of(folder).keys():
            return None
        return cls(folder, state["context"], Network(**state["network"]), state["port"])

    @classmethod
    def remove(cls, folder: Path) -> bool:
        """End what runs for the cluster in a folder, whatever started it, and remove what it made; tell if it ran.

        Raises ClusterError, and changes nothing, where the folder is a link, or has files that no cluster made.
        """
        processes.refuse_other_systems()
        place.refuse_others(folder)
        folder = folder.resolve()
        if not place.made(folder):  # somebody removed it under a running cluster
            running = bool(processes.of(folder))
            processes.end(folder)
            return running
        with locked(folder):
            running = bool(processes.of(folder))
            processes.end(folder)
            place.remove(folder)
        return running

    def stop(self) -> None:
        """End every program by its process id, and remove all but the logs."""
        with locked(self.folder):
            processes.end(self.folder, [*self._children.values()])
            clean(self.folder, logs=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the programs that run, by name."""
        return processes.of(self.folder)

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """Return the environment for commands that talk to this cluster, and leave the user's own settings alone."""
        # A proxy for the world outside must not be asked for a cluster on this machine.
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
        """Run kubectl; raise ClusterError when it fails, unless told not to `check`."""
        command = [str(_kubectl()), *map(str, arguments)]
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
        """Apply objects server-side in this order; return what kubectl says. More arguments go to kubectl."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})
        return self.kubectl("apply", "--server-side", *arguments, "-f", "-", input=text, timeout=timeout).stdout

    def get(self, kind: str, name: str | None = None, namespace: str | None = None, selector: str | None = None) -> Any:
        """Return one object by its name, or a list of all: of a namespace, or of the whole cluster."""
        where = ["--namespace", namespace] if namespace else ["--all-namespaces"] if name is None else []
        which = [name] if name else ["--selector", selector] if selector else []
        found = json.loads(self.kubectl("get", kind, *which, *where, "--output", "json").stdout)
        return found if name else found["items"]

    def add_nodes(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create nodes, and what else the `nodes` module returns with them, or bring them up to date; wait for them."""
        nodes = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Node"}
        there = {item["metadata"]["name"]: item for item in self.get("nodes")} if nodes else {}
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects]})
        # Not server-side: that would leave out a node's status, which holds what it offers.
        self.kubectl("apply", "-f", "-", input=text, timeout=READY_SECONDS)
        for name, node in nodes.items():
            offered = node["status"]["allocatable"]
            if name in there and there[name]["status"].get("allocatable") != offered:
                patch = [
                    {"op": "add", "path": f"/status/{key}", "value": offered} for key in ("allocatable", "capacity")
                ]
                self.kubectl("patch", "node", name, "--subresource=status", "--type=json", "-p", json.dumps(patch))
        if nodes:
            limit = f"--timeout={READY_SECONDS}s"
            self.kubectl("wait", "--for=condition=Ready", limit, "node", *nodes, timeout=READY_SECONDS + 5)

    def _bring_up(self, outlives: bool) -> None:
        (self.folder / "logs").mkdir()
        self.write_tokens()
        write_stages(self.folder)
        if self.aggregates:
            from .certificates import Authority

            Authority().write(self.folder / FRONT_PROXY, "front-proxy")

        def start(*programs: str) -> None:
            for program in programs:
                command = self.command(program)
                self._children[program] = processes.spawn(program, command, self.folder, outlives=outlives)

        def wait_for(what: str, there: Callable[[], bool]) -> None:
            processes.wait_for(what, there, self._children, self.folder, READY_SECONDS)

        def answers(*command: str) -> bool:
            with suppress(ClusterError):  # a look without an answer is taken again
                return self.kubectl(*command, check=False, timeout=20).returncode == 0
            return False

        start("etcd")
        wait_for("etcd", (self.folder / "etcd.sock").exists)
        start("kube-apiserver")
        wait_for("kube-apiserver", self.has_certificate)
        self.write_kubeconfigs()
        wait_for("kube-apiserver", lambda: answers("get", "--raw", "/readyz"))
        start("kube-scheduler", "kwok", "kube-controller-manager")  # the last is waited for
        account = ("get", "serviceaccount", "default", "--namespace", "default")
        wait_for("kube-controller-manager", lambda: answers(*account))


@cache
def _kubectl() -> Path:
    return tools.path("kubectl")  # asks programs on the PATH for their versions: once is enough
