"""Models that only their own backend can read: plans of TensorRT, and libraries of backends of one's own."""

import re
from pathlib import Path

from ....errors import UsageError
from .python import files_of
from .reading import Reading, config_of

PLAN = "model.plan"
PLAN_MAGIC = (b"ptrt", b"ftrt")
LIBRARY = re.compile(r"libtriton_([A-Za-z0-9_.-]+)\.so")


def read_plan(source: Path) -> Reading:
    """Take a plan; Triton reads the tensors from it when it loads it, and completes the configuration."""
    notes = (
        "Triton reads the plan's tensors when it loads it; --input and --output say them beforehand",
        "a plan runs on the kind of GPU, and with the version of TensorRT, that it was built for",
    )
    return Reading(config_of("tensorrt", "tensorrt_plan"), ((PLAN, source),), notes=notes)


def library(source: Path) -> Path | None:
    """Return the library, be it the file or in the folder; None when there is none."""
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    return next((file for file in files if LIBRARY.fullmatch(file.name) and file.is_file()), None)


def read_library(source: Path) -> Reading:
    """Take a library, or a folder with it and what it needs."""
    file = library(source)
    found = LIBRARY.fullmatch(file.name) if file else None
    if not file or not found:
        raise UsageError("there is no libtriton_<backend>.so", where=source, do="name the library so")
    missing = "a backend of one's own has the tensors you say"
    return Reading(config_of(found[1]), files_of(source, file.name), missing=missing)
