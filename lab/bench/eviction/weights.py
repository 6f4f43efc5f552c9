"""A model for Triton's Python backend that reads all of its weights when it is loaded, and answers with its input."""

from pathlib import Path
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the weights."""
        self._weights = numpy.fromfile(Path(args["model_repository"], args["model_version"], "weights.bin"), "uint8")

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request with its number."""
        numbers = (triton.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests)
        return [triton.InferenceResponse([triton.Tensor("OUTPUT", number)]) for number in numbers]
