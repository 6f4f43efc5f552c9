"""Returns its input: OUTPUT is INPUT, of any data type. As `slow` it takes a while."""

import time
from typing import Any

import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, arguments: dict[str, str]) -> None:
        self._seconds = 0.1 if arguments["model_name"] == "slow" else 0.0

    def execute(self, requests: list[Any]) -> list[Any]:
        time.sleep(self._seconds)
        given = (triton.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests)
        return [triton.InferenceResponse([triton.Tensor("OUTPUT", tensor)]) for tensor in given]
