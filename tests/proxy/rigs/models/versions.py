from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, arguments: dict[str, str]) -> None:
        self._version = int(arguments["model_version"])

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        given = triton.get_input_tensor_by_name(request, "INPUT").as_numpy()
        version = numpy.array([self._version], numpy.int32)
        return triton.InferenceResponse([triton.Tensor("OUTPUT", given), triton.Tensor("VERSION", version)])
