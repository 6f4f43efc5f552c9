"""A model of a GPU that models share: an answer takes `seconds` of it, and one model computes at a time.

The GPU is a lock of the Triton that this process is of, so that each replica has its own, as each has a slice.
"""

import fcntl
import json
import os
import time
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Take its memory."""
        said = json.loads(arguments["model_config"])["parameters"]
        mebibytes, self._seconds = (float(said[name]["string_value"]) for name in ("mebibytes", "seconds"))
        self._held = numpy.ones(int(mebibytes) << 20, numpy.uint8)
        self._gpu = os.open(f"{said['gpu']['string_value']}/{os.getppid()}", os.O_RDWR | os.O_CREAT, 0o600)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request with its input."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        fcntl.flock(self._gpu, fcntl.LOCK_EX)
        try:
            time.sleep(self._seconds)
        finally:
            fcntl.flock(self._gpu, fcntl.LOCK_UN)
        given = triton.get_input_tensor_by_name(request, "INPUT").as_numpy()
        return triton.InferenceResponse([triton.Tensor("OUTPUT", given)])
