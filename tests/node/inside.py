"""The first process of a node: runs in namespaces of its own (see keeper.py), and brings up everything there.

A control plane, containerd, kubelet, kube-proxy, the cluster's DNS: they see a network with nobody else in it, and
write to folders that the machine around them never sees. `python -m tests.node.inside FOLDER`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lab import tools
from lab.local_cluster import LocalCluster

from . import settings
from .parts import Parts
from .settings import NETWORK, NODE

HERE = Path(__file__).resolve().parent
READY, FAILED, PARTS = "ready.json", "failed.txt", "parts.json"
HIDDEN = ("/run", "/var/lib", "/var/log", "/srv")
"""Where containerd, kubelet and CNI plugins write whatever they are told; and where the definition has its dataset."""


def main(folder: Path) -> None:
    """Bring the node up, tell where it is, and look after its processes until somebody ends this one."""
    assert os.getpid() == 1, "this belongs into a PID namespace of its own"
    try:
        Inside(folder).up()
    except Exception as error:
        failed(folder, error)
        raise
    while True:
        # The first process inherits what others leave behind, such as the shims of ended containers.
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


class Inside:
    """What is brought up, one thing after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = Parts.read(folder / PARTS)
        self.debian = self.parts.debian
        self.room = folder / "room"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """Bring everything up, and write down where it is."""
        started = time.monotonic()
        self._private_folders()
        self._network()
        cluster = LocalCluster.start(self.folder / "cluster", name="node", network=NETWORK)
        self._containerd(self.parts.archives)
        self._kubelet(cluster)
        self._kube_proxy(cluster)
        cluster.kubectl("apply", "--server-side", "-f", str(HERE / "coredns.yaml"))
        cluster.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s", timeout=200)
        cluster.kubectl("wait", "--for=jsonpath={.metadata.name}=default", "serviceaccount/default", "--timeout=50s")
        seconds = time.monotonic() - started
        write(self.folder / READY, json.dumps({"kubeconfig": str(cluster.kubeconfig), "seconds": seconds}))

    def _private_folders(self) -> None:
        """Put empty folders in memory where programs write outside of `room`: only this mount namespace has them."""
        self.room.mkdir()
        self._mount("-t", "tmpfs", "tmpfs", str(self.room))
        needed = [self.folder, tools.cache_root(), Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), Path.home()]
        for place in HIDDEN:
            before = self.room / "hidden" / place.strip("/")
            before.mkdir(parents=True)
            self._mount("--rbind", place, str(before))
            self._mount("-t", "tmpfs", "tmpfs", place)
            for path in needed:
                if path.is_relative_to(place) and not path.exists():
                    path.mkdir(parents=True)
                    self._mount("--rbind", str(before / path.relative_to(place)), str(path))
        for model in ("digits", "churn"):
            (Path("/srv/models") / model).mkdir(parents=True)

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True, timeout=20)

    def _network(self) -> None:
        ip = str(self.debian.path("ip"))
        for command in (
            "link set lo up",
            # A bridge without ports carries the node's address: not every kernel has `dummy` links.
            "link add node0 type bridge",
            f"address add {NETWORK.address}/24 dev node0",
            "link set node0 up",
            "route add default dev node0",  # an API server wants one
        ):
            arguments = [ip, *command.split()]
            subprocess.run(arguments, check=True, capture_output=True, text=True, env=self.environment, timeout=20)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    @property
    def environment(self) -> Mapping[str, str]:
        return self.debian.environment()

    def _containerd(self, archives: list[Path]) -> None:
        (self.room / "cni").mkdir()
        (self.room / "cni" / "pods.conflist").write_text(json.dumps(settings.pod_network(self.room)))
        file = self.room / "containerd.toml"
        file.write_text(settings.containerd_settings(self.room, self.debian.root))
        self._start("containerd", str(self.debian.path("containerd")), "--config", str(file))
        self._wait("containerd", lambda: self._ctr("version").returncode == 0)
        for archive in archives:
            self._ctr("images", "import", str(archive), check=True)
        # The same image under another tag, to roll out.
        for name in ("triton", "proxy", "eviction-policy"):
            self._ctr("images", "tag", f"localhost/{name}:test", f"localhost/{name}:next", check=True)

    def _ctr(self, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        command = [
            str(self.debian.path("ctr")),
            "--address",
            str(settings.socket(self.room)),
            "--namespace",
            "k8s.io",
            *arguments,
        ]
        return subprocess.run(
            command, check=check, capture_output=True, text=True, env=dict(self.environment), timeout=120
        )

    def _kubelet(self, cluster: LocalCluster) -> None:
        file = self.room / "kubelet.yaml"
        cgroup = (self.folder / "cgroup").read_text()
        file.write_text(json.dumps(settings.kubelet_settings(self.folder, self.room, cgroup)))
        self._start(
            "kubelet",
            str(tools.path("kubelet")),
            f"--config={file}",
            f"--kubeconfig={cluster.user(f'system:node:{NODE}', ['system:nodes'])}",
            f"--hostname-override={NODE}",
            f"--node-ip={NETWORK.address}",
            f"--root-dir={self.room / 'kubelet'}",
            f"--cert-dir={self.room / 'kubelet-pki'}",
        )
        ready = ("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s")
        self._wait("kubelet", lambda: cluster.kubectl(*ready, check=False).returncode == 0)

    def _kube_proxy(self, cluster: LocalCluster) -> None:
        file = self.room / "kube-proxy.yaml"
        file.write_text(json.dumps(settings.kube_proxy_settings(cluster.user("system:kube-proxy"))))
        self._start("kube-proxy", str(tools.path("kube-proxy")), f"--config={file}")

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(self.environment)
            )

    def _wait(self, name: str, ready: Callable[[], bool], seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            ended = self.processes[name].poll()
            if ended is not None or time.monotonic() > deadline:
                lines = (self.folder / "log" / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
                state = "is not ready" if ended is None else f"ended with exit code {ended}"
                raise RuntimeError("\n  ".join([f"{name} {state}; its last lines:", *lines]))
            time.sleep(0.1)


def failed(folder: Path, error: Exception) -> None:
    """Tell those who wait for the node why there is none."""
    write(folder / FAILED, f"{type(error).__name__}: {error}\n{getattr(error, 'stderr', None) or ''}")


def write(path: Path, text: str) -> None:
    """Write a file that is whole when it is there."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
