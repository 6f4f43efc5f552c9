"""What people see while a rollout is at work: a table that changes on a terminal, plain lines anywhere else."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.live import Live
from rich.table import Table
from rich.text import Text

from stacks.problems import escaped, shortened

from ..terminal import console, note
from .plan import Step

_EVERY_SECONDS = 10.0
"""How often a plain line repeats what a plane is waiting for."""
WORDS: Mapping[str, str] = {
    "waiting": "not begun",
    "applying": "being brought up",
    "applied": "at its health gate",
    "passed": "passed",
    "failed": "FAILED",
    "interrupted": "interrupted",
}


@contextmanager
def watching(states: Mapping[str, str]) -> Iterator["Lines"]:
    """Show how planes fare, on standard error; `states` says where each stands at the beginning."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    board = Board(states)
    with Live(get_renderable=board.table, console=console(stderr=True), refresh_per_second=4, transient=True):
        yield board


class Lines:
    """A line for each change, and now and then one for what is being waited for."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def step(self, step: Step, number: int, of: int) -> None:
        """Say which planes go now."""
        note(heading(step, number, of))

    def state(self, plane: str, state: str, text: str = "") -> None:
        """Say where a plane stands now."""
        self._said.pop(plane, None)
        note(f"[{plane}] {WORDS[state]}{f': {text}' if text else ''}")

    def says(self, plane: str, text: str) -> None:
        """Repeat what is being waited for; what an engine says stands in its log."""
        before, when = self._said.get(plane, ("", 0.0))
        now = time.monotonic()
        if text.startswith("waiting: ") and text != before and now - when >= _EVERY_SECONDS:
            self._said[plane] = text, now
            note(f"[{plane}] {text}")


@dataclass
class _Row:
    state: str
    text: str = ""
    begun: float | None = None
    took: float | None = None


class Board(Lines):
    """A table with a row a plane."""

    def __init__(self, states: Mapping[str, str]) -> None:
        super().__init__()
        self._rows = {plane: _Row(state) for plane, state in states.items()}
        self._title = ""
        self._lock = threading.Lock()

    def step(self, step: Step, number: int, of: int) -> None:
        """Say in the title which planes go now."""
        self._title = heading(step, number, of)

    def state(self, plane: str, state: str, text: str = "") -> None:
        """Change a plane's row."""
        with self._lock:
            row = self._rows[plane]
            row.state, row.text = state, text
            if state == "applying":
                row.begun, row.took = time.monotonic(), None
            elif state != "applied" and row.begun is not None:
                row.took = time.monotonic() - row.begun

    def says(self, plane: str, text: str) -> None:
        """Show the latest line."""
        self._rows[plane].text = text

    def table(self) -> Table:
        """Return the table as it is now."""
        table = Table(title=self._title, title_justify="left", box=None, expand=True)
        for name in ("Plane", "State", "Seconds"):
            table.add_column(name, no_wrap=True)
        table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
        with self._lock:
            for plane, row in self._rows.items():
                seconds = row.took if row.took is not None else time.monotonic() - row.begun if row.begun else None
                cells = (plane, WORDS[row.state], "" if seconds is None else f"{seconds:.0f}", _first(row.text))
                table.add_row(*map(Text, cells), style={"failed": "red", "passed": "green"}.get(row.state, ""))
        return table


def heading(step: Step, number: int, of: int) -> str:
    """Return which planes go now: `Step 2 of 3, wave 1: west, north`."""
    return f"Step {number} of {of}, {step.title}: {', '.join(step.planes)}"


def _first(text: str) -> str:
    return escaped(shortened(text.partition("\n")[0], 200))
