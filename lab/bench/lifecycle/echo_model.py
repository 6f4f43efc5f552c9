"""A model that gives back what it was given; Triton's Python backend runs it."""

from typing import Any

import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        given = (triton.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests)
        return [triton.InferenceResponse([triton.Tensor("OUTPUT", numbers)]) for numbers in given]
