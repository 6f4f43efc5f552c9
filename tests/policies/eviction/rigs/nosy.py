"""A model for Triton's Python backend that inspects its environment, and writes the findings to the file `report`."""

import json
import os
from pathlib import Path
from typing import Any


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        report = json.loads(args["model_config"])["parameters"]["report"]["string_value"]
        server = os.getppid()
        os.kill(server, 0)  # Raises if it may not send it a signal.
        found = {
            "command": Path(f"/proc/{server}/cmdline").read_text().split("\0"),
            "writable": [name for name in os.listdir("/dev/shm") if os.access(f"/dev/shm/{name}", os.W_OK)],
        }
        Path(report).write_text(json.dumps(found))

    def execute(self, requests: list[Any]) -> list[Any]:
        """It is never called."""
        raise NotImplementedError(requests)
