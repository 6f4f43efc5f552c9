"""The model of every corpus entry in the Python backend: it gives back what it is given."""

from typing import Any

import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        answers = []
        for request in requests:
            given = triton.get_input_tensor_by_name(request, "IN")
            answers.append(triton.InferenceResponse([triton.Tensor("OUT", given.as_numpy())]))
        return answers
