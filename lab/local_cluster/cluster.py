"""A real control plane on this machine, with simulated nodes."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from lab import tools

from . import folder as place
from . import processes
from .control_plane import PROGRAMS, ClusterError, ControlPlane, Network, private, write_stages
from .folder import STATE, clean, free_port, locked, private_folder
from .watch import watched

READY_SECONDS = 90


@dataclass
class LocalCluster:
    """A running control plane: etcd, API server, controller manager, scheduler, and kwok, which plays nodes.

    >>> with LocalCluster.start(Path("/tmp/some-folder"), nodes=[cpu_node("cpu-1")]) as cluster:
    ...     cluster.kubectl("get", "nodes").stdout
    """

    plane: ControlPlane
    command_prefix: tuple[str, ...] = ()
    _children: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict, repr=False)

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        name: str = "local",
        nodes: Sequence[Mapping[str, Any]] = (),
        command_prefix: Sequence[str] = (),
        network: Network | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
        outlives: bool = False,
    ) -> Self:
        """Start a cluster in a folder of its own, and return when it and its nodes are ready; raises ClusterError.

        `name` is the context in its kubeconfig, `command_prefix` stands before every command (`nsenter --net=…`),
        `options` are more options of the programs by name. Unless it `outlives` this process, it ends with it, even if
        this process is killed; a start that is killed before it is done leaves no process either way. What an earlier,
        killed run left in the folder is ended and removed first; nothing else is, and a folder behind a link, or with
        somebody's files under the names of a cluster's, is refused.
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
            with watched(folder) if outlives else nullcontext(), free_port(network) as port:
                cluster = cls(ControlPlane(folder, name, network, port, options or {}), tuple(command_prefix))
                try:
                    cluster._bring_up(outlives)
                    if nodes:
                        cluster.add_nodes(nodes)
                    cluster._write_state()
                except BaseException:
                    processes.end(folder, [*cluster._children.values()])
                    raise
        return cluster

    @classmethod
    def running(cls, folder: Path) -> Self | None:
        """Return the cluster that runs in a folder, started by whomever; None when there is none, or not all of one."""
        if folder.is_symlink():
            return None
        try:
            folder = folder.resolve()
            state = json.loads((folder / STATE).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if {*PROGRAMS} - processes.of(folder).keys():
            return None
        plane = ControlPlane(folder, state["context"], Network(**state["network"]), state["port"])
        return cls(plane, tuple(state["command_prefix"]))

    @classmethod
    def missing(cls, folder: Path) -> tuple[str, ...]:
        """Return which programs of the cluster that was started in a folder run no more; none where there is none."""
        if folder.is_symlink() or not (folder / STATE).is_file():
            return ()
        there = processes.of(folder.resolve())
        return tuple(program for program in PROGRAMS if program not in there)

    @classmethod
    def remove(cls, folder: Path) -> bool:
        """End what runs for the cluster in a folder, started by whomever, and remove what it made; tell if it ran.

        The folder goes too when nothing else lies there. Raises ClusterError, and changes nothing, where it is a link,
        or holds somebody's files under the names of a cluster's.
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
    def folder(self) -> Path:
        """The cluster's folder; logs are below."""
        return self.plane.folder

    @property
    def context(self) -> str:
        """Context in the kubeconfig."""
        return self.plane.context

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.plane.kubeconfig()

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.plane.server

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of the programs that run, by name."""
        return processes.of(self.folder)

    def environment(self, kubeconfig: Path | None = None) -> dict[str, str]:
        """Return the environment for commands that talk to this cluster, and leave the user's own settings alone."""
        # A proxy for the world outside must not be asked for a cluster on this machine.
        direct = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
        return os.environ | {
            "NO_PROXY": ",".join(filter(None, [direct, self.plane.network.address])),
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
            "KUBERC": "off",
        }

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """Return a kubeconfig of another identity, whose rights the API server evaluates as it does everybody's.

        `system:node:<node>` in the group `system:nodes` is a kubelet, `system:kube-proxy` is kube-proxy.
        """
        return self.plane.write_user(name, groups)

    def kubectl(
        self,
        *arguments: str | Path,
        input: str | None = None,  # noqa: A002
        check: bool = True,
        timeout: float = 60,
        kubeconfig: Path | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl; raise ClusterError when it fails, unless told not to `check`."""
        command = [*self.command_prefix, str(_kubectl()), *map(str, arguments)]
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
        plane, folder = self.plane, self.folder
        (folder / "logs").mkdir()
        plane.write_tokens()
        write_stages(folder)

        def start(*programs: str) -> None:
            for program in programs:
                self._children[program] = processes.spawn(
                    program, plane.command(program), folder, outlives=outlives, prefix=self.command_prefix
                )

        def there(what: str, *command: str) -> None:
            processes.wait_for(
                what,
                lambda: self.kubectl(*command, check=False, timeout=20).returncode == 0,
                self._children,
                folder,
                READY_SECONDS,
            )

        start("etcd")
        socket_file = folder / "etcd.sock"
        processes.wait_for("etcd", socket_file.exists, self._children, folder, READY_SECONDS)
        start("kube-apiserver")
        processes.wait_for("kube-apiserver", plane.has_certificate, self._children, folder, READY_SECONDS)
        plane.write_kubeconfigs()
        there("kube-apiserver", "get", "--raw", "/readyz")
        start("kube-controller-manager", "kube-scheduler", "kwok")
        there("kube-controller-manager", "get", "serviceaccount", "default", "--namespace", "default")

    def _write_state(self) -> None:
        plane = self.plane
        state = {"context": plane.context, "port": plane.port, "network": asdict(plane.network)}
        state |= {"command_prefix": self.command_prefix, "pids": self.pids}
        private(self.folder / STATE, json.dumps(state, indent=1))


@cache
def _kubectl() -> Path:
    return tools.path("kubectl")  # asks programs on the PATH for their versions: once is enough
