"""What goes wrong here, in words for the person at the terminal."""

import difflib
from collections.abc import Iterable


class ToolError(Exception):
    """A tool cannot be had: the text names the tool, the log, the last lines of the cause and the way out."""


class UnknownNameError(ToolError):
    """A name that is no tool's: the text gives the nearest names."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        """Say which name is unknown, and which of the known ones may be meant."""
        known = sorted(known)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}."
        super().__init__(f"unknown tool {name!r}: {hint}")
