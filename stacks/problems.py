"""Problems of a definition, and their messages: where, what, why and what to do."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tidegate_contracts.credentials import masked

from policies.guardrails.checking import printable

_LONGEST_VALUE = 60
_MOST_SHOWN = 200
_LONGEST_LINE = 2_000
_MOST_ALIKE = 6  # Places that a group of equal warnings names.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_$-]+(?:\.[A-Za-z0-9_$-]+)*")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]+")


Severity = Literal["error", "advisory"]

escaped = printable
"""Return a text on one line, with control and invisible characters as escapes."""


class Position(NamedTuple):
    """A place in a file. Line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        """Return `file:line:column`, which terminals and editors make clickable."""
        return f"{escaped(self.file)}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One problem of a definition, or a warning (severity `advisory`).

    `where` is a position, a file's name if no line is known, or None. `path` is the place inside the definition
    (`servers[ondemand].pools[small].gpu.mig`), and is empty for the whole file.
    """

    where: Position | str | None
    path: str
    what: str
    why: str = ""
    do: str = ""
    severity: Severity = "error"
    is_missing: bool = False  # Whether a required key is missing.
    rule: str = ""  # Name of the broken rule, if it is one of `rules`.

    def __post_init__(self) -> None:
        """Mask credentials, such as a password in an address."""
        for name in ("path", "what", "why", "do"):
            object.__setattr__(self, name, masked(getattr(self, name)))

    @property
    def file(self) -> str:
        return self.where.file if isinstance(self.where, Position) else self.where or ""

    def __str__(self) -> str:
        """Return the message: a line with where and what, and indented lines with why and what to do."""
        where = escaped(self.where) if isinstance(self.where, str) else str(self.where or "")
        what = f"advisory: {self.what}" if self.severity == "advisory" else self.what
        first = ": ".join(part for part in (where, escaped(self.path), escaped(what)) if part)
        rest = [line for text in (self.why, self.do) for line in text.splitlines() if line.strip()]
        return "\n".join([_cut(first), *(f"    {_cut(escaped(line))}" for line in rest)])


class DefinitionError(Exception):
    """A definition is not valid. `problems` has every reason, in the order of the file."""

    def __init__(self, problems: Iterable[Problem], outcome: str = "Correct the definition and run this again") -> None:
        """Sort the problems. `outcome` ends the last line, and states the next step or what happened to the files."""
        self.problems = in_order(problems)
        self.outcome = outcome
        super().__init__(self.problems, outcome)

    def __str__(self) -> str:
        shown_ones = self.problems[:_MOST_SHOWN]
        more = len(self.problems) - len(shown_ones)
        rest = [f"… and {more} more"] if more else []
        return "\n".join([*map(str, shown_ones), *rest, f"{self.summary()}. {self.outcome}."])

    def summary(self) -> str:
        """Return `3 problems and 1 advisory in stacks/inference.yaml`."""
        errors = sum(problem.severity == "error" for problem in self.problems)
        advisories = len(self.problems) - errors
        counts = [count_of(errors, "problem")] if errors or not advisories else []
        counts += [count_of(advisories, "advisory")] if advisories else []
        files = {problem.file for problem in self.problems if problem.file}
        place = f" in {escaped(next(iter(files)))}" if len(files) == 1 else f" in {len(files)} files" if files else ""
        return " and ".join(counts) + place


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems by position. Those about a whole file come before those about its lines."""

    def key(problem: Problem) -> tuple[str, int, int]:
        at = problem.where
        return at if isinstance(at, Position) else (at or "", 0, 0)

    return sorted(problems, key=key)


def shortened(text: str, longest: int = _LONGEST_VALUE) -> str:
    """Return a text, or its beginning and an ellipsis if it is longer than the limit."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def shown(value: Any) -> str:
    """Return a value as YAML, short enough for a message: text in quotes, `true`, `null`, numbers."""
    if isinstance(value, str):
        return f'"{escaped(shortened(value))}"'
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 1_000:
        return "a very long number"  # Python refuses to convert such numbers to decimal.
    return escaped(shortened(json.dumps(value, ensure_ascii=False, default=str)))


def listed(choices: Iterable[Any], most: int = 30) -> str:
    """Return choices separated by commas, for "one of: …" and "Keys here: …"."""
    words = [escaped(shortened(choice)) if isinstance(choice, str) else shown(choice) for choice in choices]
    return ", ".join(words[:most] + (["…"] if len(words) > most else []))


def readable_path(tree: Any, path: Sequence[str | int]) -> str:
    """Return a path as `servers[ondemand].pools[0].gpu`, with the names of list items that have one."""
    out = ""
    for step in path:
        below = member(tree, step)
        if isinstance(step, int):
            name = below.get("name") if isinstance(below, dict) else None
            known = isinstance(name, str) and len(name) <= _LONGEST_VALUE and _PLAIN_NAME.fullmatch(name)
            out += f"[{name if known else step}]"
        elif _PLAIN_KEY.fullmatch(step):
            out += ("." if out else "") + shortened(step)
        else:
            out += f"[{shown(step)}]"
        tree = below
    return out


def member(tree: Any, step: str | int) -> Any:
    """Return a mapping's value or a list's item, or None."""
    if isinstance(tree, dict):
        return tree.get(step)
    if isinstance(tree, list) and isinstance(step, int) and 0 <= step < len(tree):
        return tree[step]
    return None


def _cut(line: str) -> str:
    return shortened(line, _LONGEST_LINE)


def count_of(number: Any, noun: str) -> str:
    """Return `1 entry` or `3,000 entries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def counted(things: Collection[object], noun: str) -> str:
    """Return `1 stack` or `3 stacks`."""
    return count_of(len(things), noun)


def advisory_text(advisories: Iterable[Problem]) -> str:
    """Return a paragraph for each group of warnings with the same reason and remedy."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in in_order(advisories):
        kinds.setdefault((problem.why, problem.do), []).append(problem)
    return "\n".join(str(alike[0]) if len(alike) == 1 else _collapsed(alike) for alike in kinds.values())


def _collapsed(alike: list[Problem]) -> str:
    first, *lines = str(alike[0]).split("\n")
    rest = [str(problem).split("\n", 1)[0] for problem in alike[1:_MOST_ALIKE]]
    more = [f"… and {len(alike) - _MOST_ALIKE} more like these"] if len(alike) > _MOST_ALIKE else []
    return "\n".join([first, *rest, *more, *lines])
