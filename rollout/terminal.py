"""Results on standard output, progress on standard error, commands to copy. Rich is imported only if it draws."""

import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from stacks.problems import escaped

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")
_WIDTH = 120  # Columns of output to a file or a pipe.
DEFAULTS = {"stacks/inference.yaml", "build/rendered"}
"""Defaults of options. Commands to copy leave them out."""


def console(*, stderr: bool = False) -> "Console":
    """Return a console that prints texts unchanged: no markup, no emoji codes, no highlighting."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def note(text: str) -> None:
    """Print a message about the run itself to standard error."""
    print(text, file=sys.stderr, flush=True)


def in_shell(word: object) -> str:
    """Return a word quoted for a shell, for commands that people copy."""
    return shlex.quote(escaped(str(word)))


def tidegate(verb: str, *words: object, **options: object) -> str:
    """Return `tidegate <verb>` to copy, without empty words and default options. True makes an option a switch."""
    parts = ["tidegate", verb, *(in_shell(word) for word in words if word and str(word) not in DEFAULTS)]
    for name, value in options.items():
        if value and str(value) not in DEFAULTS:
            parts += [f"--{name.replace('_', '-')}", *([] if value is True else [in_shell(value)])]
    return " ".join(parts)


def progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield items, and show progress as a bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track

    yield from track(items, what, total, console=console(stderr=True), transient=True)
