"""Pipelines of DALI: serialised ones, and programs that serialise themselves. DALI itself tells Triton the tensors."""

from pathlib import Path

from .python import files_of
from .reading import Reading, config_of

PIPELINE, PROGRAM = "model.dali", "dali.py"
_NOTE = (
    "DALI tells Triton the tensors that config.pbtxt does not name, where the pipeline says what they are (dtype, "
    "ndim, output_dtype, output_ndim)"
)


def read(source: Path) -> Reading:
    """Take a pipeline, a program or a folder with it; `--input` and `--output` say the tensors beforehand."""
    is_pipeline = source.is_file() and source.suffix != ".py"
    files = ((PIPELINE, source),) if is_pipeline else files_of(source, PROGRAM)
    return Reading(config_of("dali"), files, whole_shapes=False, notes=(_NOTE,))
