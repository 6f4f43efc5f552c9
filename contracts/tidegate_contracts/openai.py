"""The contract for a server of OpenAI's HTTP API. Its ports are Triton's, so network rules need no others."""

import re
from typing import Final

HTTP_PORT: Final = 8000
METRICS_PORT: Final = 8002
"""A separate port, because most engines serve metrics at the API's port, which only proxies may reach."""
METRICS_PATH: Final = "/metrics"

REPOSITORY_ROOT: Final = "/models"

SERVED_NAME_PATTERN: Final = "[A-Za-z0-9_][A-Za-z0-9_.:-]*(/[A-Za-z0-9_][A-Za-z0-9_.:-]*)*"
"""Names of models: `llama`, `meta/llama-3.1-8b-instruct` as on Hugging Face, `llama3:8b` as with Ollama. No part is
empty or begins with a dot, so each name is a unique address, too."""
LONGEST_SERVED_NAME: Final = 255
_SERVED_NAME: Final = re.compile(SERVED_NAME_PATTERN)


def is_served_name(text: str) -> bool:
    """Return whether a call can use this name for a model."""
    return len(text) <= LONGEST_SERVED_NAME and _SERVED_NAME.fullmatch(text) is not None


def served_as(model: str, version: int) -> str:
    """Return the name under which an engine serves a version. A model without versions has its own name."""
    return f"{model}-v{version}"
