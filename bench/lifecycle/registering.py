"""How much memory registering takes, for entries of very different sizes."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Found, NotHereError, say
from local_plane.mlflow import MLflow, mlflow_server
from local_plane.process import CannotBeHadError, ProcessError

from .effort import MB, Effort
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
    command = [sys.executable, "-m", "tidegate", "register", str(entry)]
    process = subprocess.Popen(
        command, env=os.environ | {"MLFLOW_TRACKING_URI": server.uri}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    shutil.rmtree(entry)
    if process.returncode:
        raise NotHereError(f"`tidegate register` ended with {process.returncode}: {said.decode(errors='replace')}")
    peak = usage.ru_maxrss * 1024  # Linux counts in KiB
    found.add(f"most memory while {size // MB} MB are registered, MB", f"{peak / MB:.0f}")
    return peak
