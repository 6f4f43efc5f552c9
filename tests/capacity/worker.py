"""A model that takes as much memory, and as long to load and to answer, as its parameters say.

`mebibytes` it holds; `seconds` that an answer takes, one after the other, as on a GPU that is in use; `rate`: megabytes
a second at which its volume gives its weights, as a throttled one does.
"""

import json
import time
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Read the weights."""
        said = json.loads(arguments["model_config"])["parameters"]
        mebibytes, seconds, rate = (float(said[name]["string_value"]) for name in ("mebibytes", "seconds", "rate"))
        self._seconds = seconds
        self._weights = numpy.ones(int(mebibytes) << 20, numpy.uint8)
        time.sleep(mebibytes * (1 << 20) / 1e6 / rate)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request with its input."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        time.sleep(self._seconds)
        given = triton.get_input_tensor_by_name(request, "INPUT").as_numpy()
        return triton.InferenceResponse([triton.Tensor("OUTPUT", given)])
