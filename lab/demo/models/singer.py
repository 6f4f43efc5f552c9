"""A model that streams: COUNT answers, one after the other, DELAY milliseconds apart."""

import json
import time
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Load the weights, so large as the configuration says."""
        said = json.loads(arguments["model_config"])["parameters"]
        self._weights = numpy.ones((int(said["mebibytes"]["string_value"]) << 20) // 4, numpy.float32)

    def execute(self, requests: list[Any]) -> None:
        """Send every answer of each request."""
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
