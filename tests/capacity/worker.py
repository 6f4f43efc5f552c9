"""A model that takes as much memory, and as long to answer, as its parameters say.

`mebibytes` it holds besides its weights, if it has some; `seconds` that an answer takes, one after the other, as on a
GPU that is in use. What is read from the folder `volume` is read anew each time, as from one over a network.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Read the weights."""
        said = json.loads(arguments["model_config"])["parameters"]
        mebibytes, self._seconds = (float(said[name]["string_value"]) for name in ("mebibytes", "seconds"))
        self._held = [numpy.ones(int(mebibytes) << 20, numpy.uint8)]
        weights = Path(arguments["model_repository"], arguments["model_version"], "weights.bin")
        if weights.exists():
            with weights.open("rb") as file:
                self._held.append(numpy.fromfile(file, numpy.uint8))
                if weights.resolve().is_relative_to(said["volume"]["string_value"]):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request with its input."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        time.sleep(self._seconds)
        given = triton.get_input_tensor_by_name(request, "INPUT").as_numpy()
        return triton.InferenceResponse([triton.Tensor("OUTPUT", given)])
