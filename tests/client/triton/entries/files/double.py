import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.output = json.loads(args["model_config"])["output"][0]
        self.kind = pb_utils.triton_string_to_numpy(self.output["data_type"])

    def execute(self, requests: list[Any]) -> list[Any]:
        answers = []
        for request in requests:
            given = request.inputs()[0].as_numpy()
            doubled = (given.astype(np.float64) * 2).astype(self.kind)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor(self.output["name"], doubled)]))
        return answers
