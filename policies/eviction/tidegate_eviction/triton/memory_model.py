"""A model for Triton's Python backend that tells how much memory its Triton uses. The policy loads it, by its text.

It runs in Triton's own container, where alone a MIG slice can be seen, makes no CUDA context, imports no other module.
"""

import json
import os
from typing import Any

import numpy
import triton_python_backend_utils as triton

from ..readings import gpu_memory, nvml, own_memory, started


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Look for NVML once."""
        self._program = json.loads(args["model_config"])["parameters"]["program"]["string_value"]
        self._nvml = nvml()
        self._server = os.getppid()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request with a reading."""
        return [self._answer() for _ in requests]

    def _answer(self) -> Any:
        reading = {
            "program": self._program,
            "server": started(self._server),
            "gpu": gpu_memory(self._nvml),
            "process": own_memory(self._server),
        }
        text = json.dumps(reading).encode()
        return triton.InferenceResponse([triton.Tensor("READING", numpy.array([text], dtype=numpy.object_))])
