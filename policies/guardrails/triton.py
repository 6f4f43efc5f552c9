"""What the guardrails know of Triton: how a command that starts it is told, and how long Triton takes to end."""

import re
from typing import Final

PROGRAM: Final = "tritonserver"
_EXIT_SECONDS = 30  # Triton's own, where no argument says otherwise.
_EXIT_TIMEOUT = re.compile(r"--exit-timeout-secs[= ](\d+)")


def exit_seconds(command: str) -> int | None:
    """Return how many seconds requests in flight may take to end when a container is stopped; None for no Triton's."""
    if found := _EXIT_TIMEOUT.search(command):
        return int(found[1])
    return _EXIT_SECONDS if PROGRAM in command else None
