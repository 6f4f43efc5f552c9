"""What registering and publishing entries of a model repository cost."""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.registry import RegisteredVersion, Registry
from tidegate.triton.publishing import open_repository
from tidegate.triton.publishing.config import published_config

from lab.bench.report import Figures, NotHereError, say, turns
from lab.local_plane.mlflow import MLflow, mlflow_server
from lab.tools import ToolError, debian

from .caller import most_resident_bytes
from .goals import MB, ROOT, Scale

WHO = "bench"
SMALL_BYTES, LARGE_FILES = 4096, 4
SPACE = 3  # An entry lies there, in the registry, and, while the server takes it in, a third time.
CONFIG = """backend: "python"
max_batch_size: 0
input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
"""
_CHUNK = 1 << 20
_LOOK_SECONDS = 0.02


def make_entry(parent: Path, name: str, sizes: Sequence[int]) -> Path:
    """Make an entry with files of these sizes, which nothing can compress; return its folder."""
    folder = parent / name
    (folder / "1" / "weights").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG, "utf-8")
    (folder / "1" / "model.py").write_text("class TritonPythonModel:\n    pass\n", "utf-8")
    numbers = random.Random(0)
    for number, size in enumerate(sizes):
        with (folder / "1" / "weights" / f"{number:05}.bin").open("wb") as file:
            left = size
            while left:
                left -= file.write(numbers.randbytes(min(left, _CHUNK)))
    return folder


def publishing(scale: Scale) -> Figures:
    """Measure how fast versions are published: fetched from the registry, verified, renamed in; against cp and rsync.

    The artifacts lie in a folder, so that both sides read and write the same disk. What the peers leave out is left in
    on our side: every digest is compared with the manifest's, and all is on the disk before it is seen.
    """
    found = Figures()
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name,
        mlflow_server(Path(name) / "mlflow", proxied=False) as server,
    ):
        registry, folder = Registry(server.uri), Path(name)
        _publish_all(found, "small", [SMALL_BYTES] * scale.small_files, scale.runs, folder / "small", registry)
        _publish_all(found, "large", [scale.large_bytes] * LARGE_FILES, scale.runs, folder / "large", registry)
    return found


def _publish_all(found: Figures, kind: str, sizes: list[int], runs: int, folder: Path, registry: Registry) -> None:
    entry = make_entry(folder / "entries", kind, sizes)
    version = registry.register(entry, registered_by=WHO)
    sides: dict[str, Callable[[Path], None]] = {
        "tidegate": lambda to: _publish(registry, version, to),
        "cp": lambda to: _copy_and_digest(entry, to),
    }
    if (rsync := _rsync()) is not None:
        sides["rsync"] = lambda to: _run([*rsync, "-c", "-r", f"{entry}/", str(to)])
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for run, name in turns([*sides], runs):
        to = folder / f"{name}-{run}"
        os.sync()  # nobody pays for what others wrote
        begun = time.perf_counter()
        sides[name](to)
        took = time.perf_counter() - begun
        if kind == "large":
            shutil.rmtree(to)  # many small ones stay: ext4 looks long for inodes that were not in use a minute ago
        if run >= 0:
            seconds[name].append(took)
    middle = {name: statistics.median(each) for name, each in seconds.items()}
    for name, each in middle.items():
        found.add(f"{len(sizes)} {kind} files by {name}, seconds", f"{each:.3f}")
        if name != "tidegate":
            found.figures[f"publish_{kind}_vs_{name}"] = middle["tidegate"] / each
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


def _copy_and_digest(entry: Path, to: Path) -> None:
    _run(["cp", "-r", str(entry), str(to)])
    _run(["sha256sum", *(str(file) for file in to.rglob("*") if file.is_file())])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=600, stdout=subprocess.DEVNULL)


def _rsync() -> list[str] | None:
    if (there := shutil.which("rsync")) is not None:
        return [there]
    try:
        unpacked = debian.unpacked("rsync")
        return ["env", f"LD_LIBRARY_PATH={unpacked.environment()['LD_LIBRARY_PATH']}", str(unpacked.path("rsync"))]
    except ToolError as error:
        say(f"NOT MEASURED: RSYNC ({str(error).partition(chr(10))[0]}).")
        return None


def registering(scale: Scale) -> Figures:
    """Measure the most memory that `tidegate register` has for the smallest entry, and how that grows."""
    found, peaks = Figures(), []
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
        mlflow_server(Path(folder) / "mlflow") as server,
    ):
        for size in scale.registered_bytes:
            needed, free = SPACE * size, shutil.disk_usage(folder).free
            if free < needed:
                say(f"NOT MEASURED: REGISTERING {size // MB} MB (it takes {needed // MB} MB of disk, of {free // MB}).")
                continue
            peaks.append(_peak_bytes(size, Path(folder) / "entries", server))
            found.add(f"most memory while {size // MB} MB are registered, MB", f"{peaks[-1] / MB:.0f}")
    if peaks:
        found.figures["register_rss_mb"] = peaks[0] / MB
    if len(peaks) == len(scale.registered_bytes):
        found.figures["register_rss_growth"] = peaks[-1] / peaks[0]
    return found


def _peak_bytes(size: int, parent: Path, server: MLflow) -> int:
    entry = make_entry(parent, f"of-{size // MB}-mb", [size // LARGE_FILES] * LARGE_FILES)
    command = [sys.executable, "-m", "tidegate", "register", str(entry)]
    variables = os.environ | {"MLFLOW_TRACKING_URI": server.uri}
    peak = 0
    with subprocess.Popen(command, env=variables, cwd=ROOT, stdout=subprocess.DEVNULL) as registering:
        while registering.poll() is None:
            peak = max(peak, most_resident_bytes(registering.pid))
            time.sleep(_LOOK_SECONDS)
    shutil.rmtree(entry)
    if registering.returncode:
        raise NotHereError(f"`tidegate register` ended with {registering.returncode}")
    return peak
