"""NVIDIA Dynamo as Tidegate starts it: a frontend and a worker in one pod, of version 1.4."""

from typing import Final

MESSAGES: Final = {"DYN_TCP_MAX_MESSAGE_SIZE": f"{96 << 20}"}
"""What frontends and workers may send each other. A request doubles on its way to a worker, so the default of 32 MiB is
too small for bodies of 16 MiB. A frontend drops the worker that such a request did not reach."""

SYSTEM_PORT: Final = 9090
"""Port of a worker for probes, metrics, and what its frontend reads of the model, such as the tokenizer."""
FRONTEND: Final = "dynamo.frontend"
"""Python module that is a frontend."""
