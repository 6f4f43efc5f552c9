"""A model for Triton's Python backend that holds memory and identifies itself. Its parameters: it holds `mib`, loads
for `seconds`, and a load `fails` with this text."""

import json
import time
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        found = json.loads(args["model_config"])["parameters"]
        time.sleep(float(found["seconds"]["string_value"]))
        if why := found["fails"]["string_value"]:
            raise triton.TritonModelException(why)
        self._held = numpy.ones(int(found["mib"]["string_value"]) << 20, numpy.uint8)
        self._version = int(args["model_version"])
        self._name = args["model_name"].encode()

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        number = triton.get_input_tensor_by_name(request, "INPUT").as_numpy()
        version = numpy.array([self._version], numpy.int32)
        name = numpy.array([self._name], object)
        found = {"OUTPUT": number, "VERSION": version, "NAME": name}
        return triton.InferenceResponse([triton.Tensor(*each) for each in found.items()])
