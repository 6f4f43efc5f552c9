"""How fast versions are published: fetched from the registry, verified, renamed in; against what copies and digests.

The artifacts lie in a folder, so that both sides read and write the same disk. What the peers leave out is left in on
our side: every digest is compared with the manifest's, and all is on the disk before it is seen.
"""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tidegate.registry import RegisteredVersion, Registry
from tidegate.triton.publishing import open_repository
from tidegate.triton.publishing.config import published_config

from lab.bench.report import Found, NotHereError, say
from lab.local_plane.mlflow import mlflow_server
from lab.local_plane.process import CannotBeHadError, ProcessError
from lab.tools import ToolError, debian

from .effort import LARGE_FILES, MB, SMALL_BYTES, Effort
from .entries import CONFIG, make_entry

WHO = "bench"


def measure(effort: Effort) -> Found:
    """Return both kinds of entries against both peers."""
    found = Found()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
            mlflow_server(Path(folder) / "mlflow", proxied=False) as server,
        ):
            registry = Registry(server.uri)
            for kind, sizes in (
                ("small", [SMALL_BYTES] * effort.small_files),
                ("large", [effort.large_bytes] * LARGE_FILES),
            ):
                _measure(found, kind, sizes, effort.runs, Path(folder) / kind, registry)
    except CannotBeHadError as error:
        raise NotHereError(f"A PART CANNOT BE HAD HERE: {error}") from None
    except ProcessError as error:
        raise NotHereError(str(error)) from None
    return found


def _measure(found: Found, kind: str, sizes: list[int], runs: int, folder: Path, registry: Registry) -> None:
    entry = make_entry(folder / "entries", kind, sizes)
    version = registry.register(entry, registered_by=WHO)
    sides: dict[str, Callable[[Path], None]] = {
        "tidegate": lambda to: _publish(registry, version, to),
        "cp": lambda to: _copy(["cp", "-r", str(entry), str(to)], to),
    }
    if (rsync := _rsync()) is not None:
        sides["rsync"] = lambda to: _copy([*rsync, "-c", "-r", f"{entry}/", str(to)], None)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(-1, runs):  # the first only warms up
        for name, side in sides.items():
            to = folder / f"{name}-{run}"
            os.sync()  # nobody pays for what others wrote
            begun = time.perf_counter()
            side(to)
            took = time.perf_counter() - begun
            if kind == "large":
                shutil.rmtree(to)  # many small ones stay: ext4 looks long for inodes that were not in use a minute ago
            if run >= 0:
                seconds[name].append(took)
    middle = {name: statistics.median(each) for name, each in seconds.items()}
    for name, each in middle.items():
        found.add(f"{len(sizes)} {kind} files by {name}, seconds", f"{each:.3f}")
    for name in middle.keys() - {"tidegate"}:
        found.figures[f"publish_{kind}_vs_{name}"] = middle["tidegate"] / middle[name]
    if kind == "large":
        found.figures["publish_mb_per_s"] = sum(sizes) / MB / middle["tidegate"]


def _publish(registry: Registry, version: RegisteredVersion, to: Path) -> None:
    """Publish as `tidegate deploy` does, up to where Triton would see it."""
    root = to / "models"
    root.mkdir(parents=True)
    repository = open_repository(root)
    with repository.lock(version.model, WHO):
        staged = repository.staging(version.model, version.number)
        manifest = registry.fetch(version, staged)
        config = published_config(
            CONFIG, model=version.model, owner=version.number, served={version.number}, aliases={}
        )
        repository.publish(version.model, version.number, staged, manifest, config)


def _copy(command: list[str], digested: Path | None) -> None:
    subprocess.run(command, check=True, timeout=600)
    if digested is not None:
        files = [str(file) for file in digested.rglob("*") if file.is_file()]
        subprocess.run(["sha256sum", *files], check=True, timeout=600, stdout=subprocess.DEVNULL)


def _rsync() -> list[str] | None:
    if (there := shutil.which("rsync")) is not None:
        return [there]
    try:
        unpacked = debian.unpacked("rsync")
        return ["env", f"LD_LIBRARY_PATH={unpacked.environment()['LD_LIBRARY_PATH']}", str(unpacked.path("rsync"))]
    except ToolError as error:
        say(f"NOT MEASURED: RSYNC ({str(error).partition(chr(10))[0]}).")
        return None
