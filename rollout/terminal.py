"""What is printed: results on standard output, progress on standard error, and commands to copy.

Rich is imported where it draws something: commands that only say a line do not wait for it.
"""

import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from stacks.problems import escaped

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")
_WIDTH = 120  # Of output that goes to a file or a pipe.
DEFAULTS = {"stacks/inference.yaml", "build/rendered"}
"""What commands take by default, as a definition and as a folder; a command to copy leaves it out."""


def console(*, stderr: bool = False) -> "Console":
    """Return a console that takes texts as they are: no markup, no emoji codes, no colours of its own making."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def note(text: str) -> None:
    """Say something about the run itself, on standard error."""
    print(text, file=sys.stderr, flush=True)


def in_shell(word: object) -> str:
    """Return a word as it must stand in a command that people copy."""
    return shlex.quote(escaped(str(word)))


def tidegate(verb: str, *words: object, **options: object) -> str:
    """Return a command that people copy: `tidegate <verb>` with the words and options that are not empty or defaults.

    An option that is True is a switch.
    """
    parts = ["tidegate", verb, *(in_shell(word) for word in words if word and str(word) not in DEFAULTS)]
    for name, value in options.items():
        if value and str(value) not in DEFAULTS:
            parts += [f"--{name.replace('_', '-')}", *([] if value is True else [in_shell(value)])]
    return " ".join(parts)


def progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield items and show how far it is, as a bar on a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track

    yield from track(items, what, total, console=console(stderr=True), transient=True)
