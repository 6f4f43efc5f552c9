"""How much memory registering takes, for entries of very different sizes."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.bench.report import Found, NotHereError, say
from lab.local_plane.mlflow import MLflow, mlflow_server
from lab.local_plane.process import CannotBeHadError, ProcessError

from . import memory
from .effort import MB, ROOT, Effort
from .entries import make_entry

FILES = 4
SPACE = 3
"""An entry lies there, in the registry, and, while the server takes it in, a third time."""


def measure(effort: Effort) -> Found:
    """Return the most memory that `tidegate register` had for the smallest entry, and how that grew."""
    found = Found()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
            mlflow_server(Path(folder) / "mlflow") as server,
        ):
            peaks = [
                _peak_bytes(found, size, Path(folder) / "entries", server)
                for size in effort.registered_bytes
                if _fits(size, Path(folder))
            ]
    except CannotBeHadError as error:
        raise NotHereError(f"A PART CANNOT BE HAD HERE: {error}") from None
    except ProcessError as error:
        raise NotHereError(str(error)) from None
    if peaks:
        found.figures["register_rss_mb"] = peaks[0] / MB
    if len(peaks) == len(effort.registered_bytes):
        found.figures["register_rss_growth"] = peaks[-1] / peaks[0]
    return found


def _fits(size: int, folder: Path) -> bool:
    free = shutil.disk_usage(folder).free
    if free < SPACE * size:
        say(f"NOT MEASURED: REGISTERING {size // MB} MB (it takes {SPACE * size // MB} MB of disk, of {free // MB}).")
        return False
    return True


def _peak_bytes(found: Found, size: int, parent: Path, server: MLflow) -> int:
    entry = make_entry(parent, f"of-{size // MB}-mb", [size // FILES] * FILES)
    told = parent / "told"
    done = subprocess.run(
        [sys.executable, "-m", memory.__name__, told, "tidegate", "register", entry],
        env=os.environ | {"MLFLOW_TRACKING_URI": server.uri},
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    shutil.rmtree(entry)
    if done.returncode:
        raise NotHereError(f"`tidegate register` ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    peak = int(told.read_text("ascii"))
    found.add(f"most memory while {size // MB} MB are registered, MB", f"{peak / MB:.0f}")
    return peak
