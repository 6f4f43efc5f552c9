"""Raises an exception whose text contains a path: in a call, or in a stream after the first response."""

from typing import Any

import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self._decoupled = "decoupled" in args["model_name"]

    def execute(self, requests: list[Any]) -> list[Any] | None:
        if self._decoupled:
            for request in requests:
                sender, tensor = request.get_response_sender(), triton.get_input_tensor_by_name(request, "INPUT")
                sender.send(triton.InferenceResponse([triton.Tensor("OUTPUT", tensor.as_numpy())]))
                error = triton.TritonError(f"{__file__} is wrong")
                sender.send(triton.InferenceResponse(error=error), triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            return None
        raise ValueError(f"{__file__} is wrong")
