"""A logistic regression that predicts which customers will leave."""

import json
from pathlib import Path
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend requires."""

    def initialize(self, arguments: dict[str, str]) -> None:
        folder = Path(arguments["model_repository"]) / arguments["model_version"]
        trained = json.loads((folder / "weights.json").read_text("utf-8"))
        self._weights = numpy.array(trained["weights"], numpy.float32)
        self._bias = numpy.float32(trained["bias"])

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        features = triton.get_input_tensor_by_name(request, "FEATURES").as_numpy()
        scores = 1 / (1 + numpy.exp(-(features @ self._weights + self._bias)))
        return triton.InferenceResponse([triton.Tensor("SCORE", scores.astype(numpy.float32).reshape(-1, 1))])
