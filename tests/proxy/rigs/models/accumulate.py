"""A model with sequences: OUTPUT is the sum of all INPUTs of the sequence so far."""

from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, _: dict[str, str]) -> None:
        self._sums: dict[int, int] = {}

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        def value(name: str) -> int:
            return int(triton.get_input_tensor_by_name(request, name).as_numpy().flat[0])

        sequence = value("CORRID")
        total = value("INPUT") + (0 if value("START") else self._sums.get(sequence, 0))
        self._sums[sequence] = total
        if value("END"):
            del self._sums[sequence]
        return triton.InferenceResponse([triton.Tensor("OUTPUT", numpy.array([[total]], numpy.int32))])
