"""A model with weights: OUTPUT is INPUT times the model's factor, which shows callers which model answered.

With the parameter `fails`, it fails to load with that message. With `gpu`, each request computes for `seconds` on a
simulated GPU. `gpu` is a directory: a lock in it lets one model of a Triton compute at a time.
"""

import fcntl
import json
import os
import time
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend requires."""

    def initialize(self, arguments: dict[str, str]) -> None:
        parameters = json.loads(arguments["model_config"])["parameters"]
        if "fails" in parameters:
            raise triton.TritonModelException(parameters["fails"]["string_value"])
        factor, mebibytes = (int(parameters[name]["string_value"]) for name in ("factor", "mebibytes"))
        self._version = numpy.array([int(arguments["model_version"])], numpy.int32)
        self._weights = numpy.full((mebibytes << 20) // 4, factor, numpy.float32)
        self._gpu = None
        if "gpu" in parameters:
            self._seconds = float(parameters["seconds"]["string_value"])
            self._gpu = os.open(f"{parameters['gpu']['string_value']}/{os.getppid()}", os.O_RDWR | os.O_CREAT, 0o600)

    def execute(self, requests: list[Any]) -> list[Any]:
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
