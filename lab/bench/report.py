"""Common parts of the benchmarks: separate measurements, turns, a table, and a last line of JSON."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.table import Table
from tidegate_eviction.simulate.report import console

from lab.local_plane.process import CannotBeHadError, ProcessError


@dataclass(frozen=True)
class Goal:
    """The description and the goal of a figure in the last line."""

    words: str
    goal: str


@dataclass
class Figures:
    """The figures of the last line, and the lines of the table."""

    figures: dict[str, float] = field(default_factory=dict)
    lines: list[tuple[str, str]] = field(default_factory=list)  # Description and value.

    def add(self, what: str, value: str) -> None:
        self.lines.append((what, value))


def arguments(module: str, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's options. `about` is the docstring of its module."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=(about or "").partition("\n")[0])


def progress(text: str) -> None:
    """Print progress on stderr. Standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def turns(names: Sequence[str], runs: int) -> Iterator[tuple[int, str]]:
    """Yield run and name in turns, in reverse order in every other run. Run -1 only warms up."""
    for run in range(-1, runs):
        for name in names if run % 2 else reversed(names):
            yield run, name


def last_line(goals: Mapping[str, Goal], found: Mapping[str, Figures]) -> dict[str, float | None]:
    """Return the figures of the last line. None: not measured."""
    figures = {key: value for part in found.values() for key, value in part.figures.items()}
    rounded = {key: round(value, 3) if value < 100 else round(value) for key, value in figures.items()}
    return {key: rounded.get(key) for key in goals}


def table(title: str, caption: str, goals: Mapping[str, Goal], found: Mapping[str, Figures]) -> Table:
    """Return all results as a table."""
    made = Table(title=title, caption=caption)
    made.add_column("what")
    made.add_column("measured", justify="right")
    made.add_column("goal", justify="right", no_wrap=True)
    for part in found.values():
        for what, value in part.lines:
            made.add_row(what, value, "")
        made.add_section()
    for key, figure in last_line(goals, found).items():
        goal = goals[key]
        made.add_row(goal.words, "NOT MEASURED" if figure is None else f"{figure:,}", goal.goal)
    return made


def measure(goals: Mapping[str, Goal], parts: Mapping[str, Callable[[], Figures]]) -> dict[str, Figures]:
    """Measure these parts. Report and skip those that cannot run here."""
    found = {}
    for name, part in parts.items():
        try:
            found[name] = part()
        except CannotBeHadError as error:
            progress(f"NOT MEASURED: {name.upper()} (A PROGRAM CANNOT RUN HERE: {error}).")
        except ProcessError as error:
            progress(f"NOT MEASURED: {name.upper()} ({error}).")
    missing = [key for key, value in last_line(goals, found).items() if value is None]
    if missing:
        progress(f"NOT MEASURED: {', '.join(missing)}.")
    return found


def print_all(title: str, caption: str, goals: Mapping[str, Goal], found: Mapping[str, Figures]) -> None:
    """Print the table and one line of JSON."""
    console().print(table(title, caption, goals, found))
    print(json.dumps(last_line(goals, found)))
