"""A model with weights: OUTPUT is INPUT times its own factor, by which callers see which model answered.

One published with the parameter `fails` fails to load, with these words. With `gpu`, a folder, an answer takes
`seconds` of a GPU that all models of a Triton share: it is a lock in this folder, and one model computes at a time.
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
        """Load the weights, so large as the configuration says."""
        said = json.loads(arguments["model_config"])["parameters"]
        if "fails" in said:
            raise triton.TritonModelException(said["fails"]["string_value"])
        factor, mebibytes = (int(said[name]["string_value"]) for name in ("factor", "mebibytes"))
        self._version = numpy.array([int(arguments["model_version"])], numpy.int32)
        self._weights = numpy.full((mebibytes << 20) // 4, factor, numpy.float32)
        self._gpu = None
        if "gpu" in said:
            self._seconds = float(said["seconds"]["string_value"])
            self._gpu = os.open(f"{said['gpu']['string_value']}/{os.getppid()}", os.O_RDWR | os.O_CREAT, 0o600)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        if self._gpu is not None:
            fcntl.flock(self._gpu, fcntl.LOCK_EX)
            try:
                time.sleep(self._seconds)
            finally:
                fcntl.flock(self._gpu, fcntl.LOCK_UN)
        given = triton.get_input_tensor_by_name(request, "INPUT").as_numpy()
        outputs = [
            triton.Tensor("OUTPUT", given * self._weights[: given.size]),
            triton.Tensor("VERSION", self._version),
        ]
        return triton.InferenceResponse(outputs)
