"""A real node for one run of the tests, in separate network, mount and PID namespaces.

When the first process of a PID namespace ends, the kernel ends all others, including containers, and removes mounts
and network. That process ends with the run of the tests, however that ends. A killed run leaves the node's directory
and its cgroups, which the next run removes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import tools
from lab.local_cluster import LocalCluster
from lab.local_cluster.control_plane import PROGRAMS
from lab.tools import debian

from .images import ROOT, archives
from .inside import NETWORK

NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}  # The controllers that a kubelet needs.
END_SECONDS = 60


def why_not() -> str:
    """Return why this machine cannot run a real node, or an empty text if it can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "containers need Linux and root"
    if reason := debian.why_not():
        return f"containerd and runc come as Debian packages, and {reason}"
    missing = [name for name in ("unshare", "nsenter", "setpriv", "mount") if shutil.which(name) is None]
    if missing:
        return f"there is no {', '.join(missing)} here"
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, timeout=20)
    if tried.returncode:
        return f"namespaces cannot be made here: {tried.stderr.strip()}"
    places = cgroup_mounts()
    closed = [str(place) for place in places if not os.access(place, os.W_OK)]
    if closed or not places:
        return f"no cgroups can be made here: {', '.join(closed) or 'none are mounted'}"
    unheld = {name for place in places for name in CONTROLLERS - handed_down(place)}
    return f"the cgroup controllers {', '.join(sorted(unheld))} are not handed down to new cgroups" if unheld else ""


def handed_down(place: Path) -> set[str]:
    """Return the controllers of the cgroups below a mounted one. In version 1 these are all that it has."""
    file = place / "cgroup.subtree_control"
    return set(file.read_text().split()) if file.exists() else CONTROLLERS


def cgroup_mounts() -> list[Path]:
    """Return the mounts of cgroups: those of the controllers of version 1, or that of version 2."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    one = [Path(place) for place, kind in mounts if kind == "cgroup"]
    return one or [Path(place) for place, kind in mounts if kind == "cgroup2"]


@dataclass
class Machine(LocalCluster):
    """A node and its control plane. Only commands with its `prefix` are in its network."""

    @property
    def root(self) -> Path:
        return self.folder.parent


@contextmanager
def machine() -> Iterator[Machine]:
    base = tools.cache_root() / "node"
    base.mkdir(parents=True, exist_ok=True)
    sweep(base)
    packages = debian.unpacked(
        "containerd", "runc", "containernetworking-plugins", "nftables", "iproute2", "busybox-static"
    )
    images = archives(packages)
    for tool in (*PROGRAMS, "kubectl", "kubelet", "kube-proxy"):
        tools.path(tool)
    tools.module_files("kwok-stages")  # Fetch everything while there is a network.
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=base))
    (folder / "logs").mkdir()
    for place in cgroup_mounts():
        (place / f"tidegate-{folder.name}").mkdir()
    log, pipe = folder / "logs" / "inside.log", subprocess.PIPE
    inside = [sys.executable, "-m", "tests.node.inside", str(folder), str(packages.root), *map(str, images)]
    command = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, *inside]
    try:
        with (
            log.open("w") as errors,
            subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process,
        ):
            assert process.stdin
            assert process.stdout
            try:
                if not process.stdout.readline():
                    raise RuntimeError(f"the node could not be brought up: {log.read_text()[-5000:]}")
                prefix = ("nsenter", f"--net=/proc/{process.pid}/ns/net")
                yield Machine(folder / "cluster", "node", NETWORK, NETWORK.port, prefix=prefix)
            finally:
                process.stdin.close()
                try:
                    process.wait(END_SECONDS)
                finally:
                    process.kill()
    finally:
        clean(folder)


def sweep(base: Path) -> None:
    """Clean up after killed runs. A directory's name begins with the process id of its run."""
    for folder in base.glob("*-*"):
        if not Path("/proc", folder.name.partition("-")[0]).exists():
            clean(folder)


def clean(folder: Path) -> None:
    """Remove the cgroups and the directory of a node whose processes are gone."""
    for mounted in Path("/proc/self/mounts").read_text().splitlines():
        place, kind = mounted.split()[1:3]
        if kind in ("cgroup", "cgroup2"):
            for group, _, _ in os.walk(Path(place) / f"tidegate-{folder.name}", topdown=False):
                _remove_group(Path(group))
    shutil.rmtree(folder, ignore_errors=True)


def _remove_group(group: Path) -> None:
    """Remove a cgroup. The kernel needs a moment after its last process."""
    for _ in range(100):
        try:
            return group.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            time.sleep(0.02)
    return None
