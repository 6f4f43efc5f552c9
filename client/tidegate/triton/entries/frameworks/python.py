"""Programs for the Python backend; JAX is served by it too."""

from pathlib import Path

from .programs import completes_itself, files_of, program
from .reading import Reading, config_of


def read(source: Path) -> Reading:
    """Read a model.py with a TritonPythonModel, or a folder with it and what it needs."""
    if completes_itself(program(source)):
        note = "its program tells Triton the tensors that config.pbtxt does not name (auto_complete_config)"
        return Reading(config_of("python"), files_of(source), notes=(note,))
    return Reading(
        config_of("python"), files_of(source), missing="a Python program's tensors are what you say they are"
    )


def read_jax(source: Path) -> Reading:
    """Read the same, of a program that runs JAX: the Python that runs the model must have it."""
    reading = read(source)
    note = (
        "the target's image must have JAX, or the entry a packed environment with it: --parameter "
        "EXECUTION_ENV_PATH='$$TRITON_MODEL_DIRECTORY/1/env.tar.gz'"
    )
    return Reading(reading.config, reading.files, missing=reading.missing, notes=(*reading.notes, note))
