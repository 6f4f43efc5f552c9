"""Results on standard output, progress on standard error. Rich is imported only if it draws."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")
_WIDTH = 120  # Columns of output to a file or a pipe, unless COLUMNS is set.


def console(*, stderr: bool = False) -> "Console":
    """Return a console that prints texts unchanged: no markup, no emoji codes, no highlighting."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else _WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def note(text: str) -> None:
    """Print a message about the run itself to standard error."""
    print(text, file=sys.stderr, flush=True)


def progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield items, and show progress as a bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.progress import track

    yield from track(items, what, total, console=console(stderr=True), transient=True)
