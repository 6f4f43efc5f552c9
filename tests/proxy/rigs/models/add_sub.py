"""Adds and subtracts: OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

from typing import Any

import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        one, other = (triton.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        return triton.InferenceResponse([triton.Tensor("OUTPUT0", one + other), triton.Tensor("OUTPUT1", one - other)])
