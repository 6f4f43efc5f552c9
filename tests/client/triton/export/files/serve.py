"""Replaces Triton's ONNX Runtime backend: runs the `model.onnx` of its directory with the same ONNX Runtime."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy
import triton_python_backend_utils as utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        """Load the model. The parameter `packages` has the path of ONNX Runtime."""
        sys.path.append(json.loads(args["model_config"])["parameters"]["packages"]["string_value"])
        import onnxruntime

        file = Path(args["model_repository"], args["model_version"], "model.onnx")
        self.session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        given = {each.name(): each.as_numpy() for each in request.inputs()}
        texts = {name: [each.decode() for each in array.flat] for name, array in given.items() if array.dtype == object}
        given |= {name: numpy.array(found, object).reshape(given[name].shape) for name, found in texts.items()}
        names = [each.name for each in self.session.get_outputs()]
        return utils.InferenceResponse([
            utils.Tensor(name, each) for name, each in zip(names, self.session.run(None, given), strict=True)
        ])  # fmt: skip
