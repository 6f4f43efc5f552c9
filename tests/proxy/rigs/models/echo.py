"""Answers with what it was given: OUTPUT is INPUT, of any data type."""

from typing import Any

import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests: list[Any]) -> list[Any]:
        given = (triton.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests)
        return [triton.InferenceResponse([triton.Tensor("OUTPUT", tensor)]) for tensor in given]
