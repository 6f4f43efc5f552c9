"""A model that streams COUNT responses, DELAY milliseconds apart."""

import json
import time
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend requires."""

    def initialize(self, arguments: dict[str, str]) -> None:
        parameters = json.loads(arguments["model_config"])["parameters"]
        self._weights = numpy.ones((int(parameters["mebibytes"]["string_value"]) << 20) // 4, numpy.float32)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            count, delay = (
                int(triton.get_input_tensor_by_name(request, name).as_numpy().flat[0]) for name in ("COUNT", "DELAY")
            )
            sender = request.get_response_sender()
            for number in range(count):
                time.sleep(delay / 1000)
                note = triton.Tensor("NOTE", numpy.array([number], numpy.int32))
                sender.send(triton.InferenceResponse([note]))
            sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
