"""What the parts agree on about a server that speaks OpenAI's HTTP API, whichever engine it is.

Its ports are those of Triton, so that no boundary has to open more for it.
"""

import re
from typing import Final

HTTP_PORT: Final = 8000
METRICS_PORT: Final = 8002
"""Metrics have a port of their own: most engines have them at that of the API, which nobody but proxies may reach."""
METRICS_PATH: Final = "/metrics"

REPOSITORY_ROOT: Final = "/models"

SERVED_NAME_PATTERN: Final = "[A-Za-z0-9_][A-Za-z0-9_.:-]*(/[A-Za-z0-9_][A-Za-z0-9_.:-]*)*"
"""How clients spell models: `llama`, `meta/llama-3.1-8b-instruct` as on Hugging Face's hub, `llama3:8b` as with Ollama.
No part is empty or begins with a dot, so that each is one and the same address, too."""
LONGEST_SERVED_NAME: Final = 255
_SERVED_NAME: Final = re.compile(SERVED_NAME_PATTERN)


def is_served_name(text: str) -> bool:
    """Tell whether a call can name a model so."""
    return len(text) <= LONGEST_SERVED_NAME and _SERVED_NAME.fullmatch(text) is not None


def served_as(model: str, version: int) -> str:
    """Return the name under which an engine serves a version; a model without versions is served by its own name."""
    return f"{model}-v{version}"
