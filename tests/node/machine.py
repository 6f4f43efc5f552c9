"""A node as the tests see it: shared by the processes of one test run, started by the first, ended with the last."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lab import tools
from lab.tools import debian

from .inside import FAILED, READY
from .keeper import NAMESPACES, PROCESS, ROOT, USERS, cgroup_mounts, clean, nobody_uses
from .parts import PACKAGES
from .settings import socket

STARTED = "started"
CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}
"""Those that a kubelet wants."""
START_SECONDS = 40 * 60
"""With everything to be built first; a minute, else."""


def why_not() -> str:
    """Return why this machine cannot run a real node; nothing where it can."""
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
    """Return the controllers that cgroups below a mounted one get; all that it has, where cgroups are of version 1."""
    file = place / "cgroup.subtree_control"
    return set(file.read_text().split()) if file.exists() else CONTROLLERS


@dataclass(frozen=True)
class Machine:
    """A node and its control plane."""

    folder: Path
    kubeconfig: Path
    seconds: float
    """How long bringing it up took."""

    def command(self, *command: str) -> list[str]:
        """Return a command that runs in the node's network."""
        return ["nsenter", f"--net=/proc/{(self.folder / PROCESS).read_text()}/ns/net", *command]

    def import_image(self, archive: Path) -> None:
        """Give the node's containerd an image, such as `image_archives.pack` writes."""
        packages = debian.unpacked(*PACKAGES)
        command = (
            str(packages.path("ctr")),
            f"--address={socket(self.folder / 'room')}",
            "--namespace=k8s.io",
            "images",
            "import",
        )
        mounts = f"--mount=/proc/{(self.folder / PROCESS).read_text()}/ns/mnt"
        subprocess.run(
            ["nsenter", mounts, *command, str(archive)],
            env=packages.environment(),
            capture_output=True,
            check=True,
            timeout=120,
        )

    def kubectl(
        self, *arguments: str, text: str | None = None, check: bool = True, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator."""
        done = subprocess.run(
            self.command(str(tools.path("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments),
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds,
            # Nothing of the person's own; the next node has the same address, but may offer other things.
            env=os.environ | {"KUBECACHEDIR": str(self.folder / "kubectl-cache"), "KUBERC": "off"},
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}"
        return done

    def helm(self, *arguments: str | Path, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run Helm as the administrator, with nothing of the person's own; return how it ended, whether well or not."""
        folders = {f"HELM_{name}_HOME": str(self.folder / "helm") for name in ("CACHE", "CONFIG", "DATA")}
        others = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
        return subprocess.run(
            self.command(str(tools.path("helm")), f"--kubeconfig={self.kubeconfig}", *map(str, arguments)),
            capture_output=True,
            text=True,
            timeout=seconds,
            env=others | folders,
        )

    def get(self, *arguments: str) -> Any:
        """Return what `kubectl get` finds."""
        return json.loads(self.kubectl("get", "--output=json", *arguments).stdout)


@contextmanager
def machine(run: str) -> Iterator[Machine]:
    """Give the node of one test run, which several processes of it may use at once."""
    base = tools.cache_root() / "node"
    base.mkdir(parents=True, exist_ok=True)
    folder = base / run
    with _lock(base):
        _sweep(base, folder)
        users = _use(folder)
        if not (folder / READY).exists():
            with suppress(FileNotFoundError):
                _start(folder)
    try:
        _wait(folder)
        ready = json.loads((folder / READY).read_text())
        yield Machine(folder, Path(ready["kubeconfig"]), ready["seconds"])
    finally:
        users.close()
        _let_go(folder)


@contextmanager
def _lock(base: Path) -> Iterator[None]:
    with (base / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _use(folder: Path) -> IO[str]:
    """Return the open file whose shared lock says that this process uses the node."""
    while True:
        folder.mkdir(exist_ok=True)
        try:
            users = (folder / USERS).open("a")
            fcntl.flock(users, fcntl.LOCK_SH)
            if os.fstat(users.fileno()).st_ino == (folder / USERS).stat().st_ino:
                return users
        except FileNotFoundError:
            pass  # the last user has just gone: a new one is made
        time.sleep(0.05)


def _start(folder: Path) -> None:
    if (folder / STARTED).exists():
        return
    with (folder / "keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.node.keeper", str(folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the tests: the node goes when they do
        )
    (folder / STARTED).write_text(str(keeper.pid))


def _wait(folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not (folder / READY).exists():
        if (folder / FAILED).exists():
            raise RuntimeError(f"the node could not be brought up: {(folder / FAILED).read_text()}")
        if not _runs(folder, STARTED):
            raise RuntimeError(f"the node's keeper has ended: {(folder / 'keeper.log').read_text()}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the node is not there after {START_SECONDS} s; its logs are in {folder}")
        time.sleep(0.1)


def _let_go(folder: Path) -> None:
    """Wait until the node is gone, unless somebody else uses it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _runs(folder, STARTED):
        try:
            with (folder / USERS).open() as users:
                # Its keeper holds the lock while it ends the node, others share it.
                if not nobody_uses(users) and _shared(users):
                    return
        except FileNotFoundError:
            return
        time.sleep(0.05)


def _shared(users: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def _sweep(base: Path, own: Path) -> None:
    """Clean up after runs whose keeper was killed as well."""
    for folder in base.iterdir():
        if folder.suffix == ".gone":
            shutil.rmtree(folder, ignore_errors=True)
        if folder == own or not (folder / USERS).exists():
            continue
        with suppress(FileNotFoundError), (folder / USERS).open("a") as users:
            if nobody_uses(users) and not _runs(folder, PROCESS):
                clean(folder)


def _runs(folder: Path, file: str) -> bool:
    """Tell whether a process of a node, whose id stands in a file, is still there."""
    try:
        process = Path("/proc") / (folder / file).read_text()
        command = (process / "cmdline").read_text()
        # A process that has just been started has no command line for a moment; one that has ended has none any more.
        ended = (process / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return False
    return not ended and (not command or str(folder) in command)
