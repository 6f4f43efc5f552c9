"""A real Triton on this machine's CPU: the `tritonserver` of the wheel nvidia-pytriton, and perf_analyzer."""

import ctypes
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.tools import debian
from rollout.tools.cache import once

from .process import HOST, CannotBeHadError, Server, answers, free_ports, had, running
from .wheels import environment, site_packages

GLIBC = (2, 35)
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
TOO_NEW = (3, 13)
LIBRARY = f"libpython{PYTHON}.so.1.0"  # The Python backend needs it to run models.
READY_SECONDS = 120.0
_SHARED_MEMORY = Path("/dev/shm")
_UNSAID = ("--model-control-mode=none", "--allow-gpu-metrics=false", "--exit-timeout-secs=5", "--log-verbose=0")


@dataclass(frozen=True)
class Installed:
    """The paths of Triton, and its environment."""

    venv: Path
    server: Path
    backends: Path
    libraries: Path  # The libraries of perf_analyzer, by the names that it loads.
    variables: dict[str, str]

    @property
    def perf_analyzer(self) -> Path:
        """The real one, of the last tritonclient that runs on Debian 12."""
        return self.venv / "bin" / "perf_analyzer"


@dataclass(frozen=True)
class Triton(Server):
    """A running Triton."""

    metrics_port: int

    @property
    def ports(self) -> tuple[int, int, int]:
        return self.http_port, self.grpc_port, self.metrics_port


@cache
def installed() -> Installed:
    """Return Triton, installed if necessary. Raises CannotBeHadError."""
    what = "a real Triton (nvidia-pytriton)"
    if sys.version_info >= TOO_NEW:
        why = f"its Python backend needs numpy 1, which has no wheel for Python {PYTHON}"
        raise CannotBeHadError(f"{what}: {why}. Run `make PYTHON=python3.12 …`")
    venv = environment("triton", what, GLIBC)
    packages = site_packages(venv)
    home = packages / "pytriton" / "tritonserver"
    stub = home / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
    beside = home / "backends" / "python" / stub.name
    once(beside, lambda partial: _program(stub, partial), "Triton's Python backend")
    server = home / "bin" / "tritonserver"
    server.chmod(0o755)
    libraries = venv / "perf-analyzer-libraries"
    once(libraries, lambda partial: _renamed(packages / "nvidia_pytriton.libs", partial), "perf_analyzer's libraries")
    variables = {"PATH": f"{venv / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    if python := _python_library(what):
        variables["LD_LIBRARY_PATH"] = str(python)
    return Installed(venv, server, home / "backends", libraries, variables)


@contextmanager
def triton(
    folder: Path,
    repository: Path,
    core: int | None = None,
    options: Sequence[str] = (),
    ports: Sequence[int] | None = None,
    host: str = HOST,
) -> Iterator[Triton]:
    """Run a Triton with a model repository until the block ends, with its files in a directory.

    `ports` are those of a Triton that it replaces. Models may then fail to load, so it only needs to be live. By
    default they are free ones. `host` is a loopback address, which distinguishes replicas with the same ports.
    """
    have = installed()
    folder.mkdir(parents=True, exist_ok=True)
    http_port, grpc_port, metrics_port = ports or free_ports(3)
    health = "/v2/health/live" if ports else "/v2/health/ready"
    shared = f"tidegate_{os.getpid()}_{http_port}_{host.rpartition('.')[2]}_"
    command: list[str | Path] = [
        have.server,
        f"--model-repository={repository}",
        f"--backend-directory={have.backends}",
        *(f"--{side}-address={host}" for side in ("http", "grpc", "metrics")),
        f"--http-port={http_port}",
        f"--grpc-port={grpc_port}",
        f"--metrics-port={metrics_port}",
        f"--backend-config=python,shm-region-prefix-name={shared}",
        *_UNSAID,
        *options,
    ]
    try:
        with running("Triton", command, folder / "triton.log", os.environ | have.variables, core) as process:
            process.wait_until(lambda: answers(http_port, health, host), READY_SECONDS)
            yield Triton(process, http_port, grpc_port, metrics_port, host=host)
    finally:
        for left in _SHARED_MEMORY.glob(f"{shared}*"):  # Of a killed Triton.
            left.unlink(missing_ok=True)


def _program(stub: Path, partial: Path) -> None:
    shutil.copyfile(stub, partial)
    partial.chmod(0o755)


def _renamed(bundled: Path, partial: Path) -> None:
    """Link the wheel's renamed libraries to their usual names."""
    partial.mkdir()
    for pattern, name in (("libb64-*", "libb64.so.0d"), ("libcudart-*", "libcudart.so.12")):
        (found,) = bundled.glob(pattern)
        (partial / name).symlink_to(found)


def _python_library(what: str) -> Path | None:
    """Return the directory of this Python's shared library. None: the loader finds it."""
    own = Path(sysconfig.get_config_var("LIBDIR") or "/nowhere")
    if (own / LIBRARY).exists():
        return own
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        pass
    else:
        return None
    why = f"{what}: there is no {LIBRARY}, and Debian's cannot be had"
    unpacked = had(why, debian.unpacked, f"libpython{PYTHON}")
    return next(unpacked.root.glob(f"**/{LIBRARY}")).parent
