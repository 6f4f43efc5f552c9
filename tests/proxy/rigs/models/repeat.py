"""A decoupled model. For each number of IN it sends one response after DELAY milliseconds. A negative number is an
error in the middle of the stream."""

import time
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._answer(request)

    def _answer(self, request: Any) -> None:
        sender = request.get_response_sender()
        numbers = triton.get_input_tensor_by_name(request, "IN").as_numpy()
        delays = triton.get_input_tensor_by_name(request, "DELAY").as_numpy()
        for index, (number, delay) in enumerate(zip(numbers, delays, strict=True)):
            time.sleep(int(delay) / 1000)
            if number < 0:
                error = triton.TritonError(f"{number} is less than 0")
                sender.send(triton.InferenceResponse([], error))
                continue
            outputs = [
                triton.Tensor("OUT", numpy.array([number], numpy.int32)),
                triton.Tensor("INDEX", numpy.array([index], numpy.uint32)),
            ]
            sender.send(triton.InferenceResponse(outputs))
        sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
