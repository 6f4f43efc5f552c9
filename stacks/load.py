"""Reads a definition file: YAML 1.2 values as a plain tree, and the line and column of each of them.

Whatever is wrong with a file is a `DefinitionError`, never another exception. `stacks.reading` does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from .problems import DefinitionError, Position, Problem, escaped, readable_path
from .reading.files import MAX_BYTES, check_text, read_text, refuse
from .reading.syntax import syntax_problem
from .reading.tree import MAX_DEPTH, MAX_VALUES, Composer, Node, StopReading
from .reading.values import kind_of

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_VALUES", "Document", "PathInTree", "load", "parse"]

PathInTree = Sequence[str | int]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """A loaded definition: the plain `tree`, and where in `file` each part of it stands."""

    tree: dict[str, Any]
    file: str
    _root: Node = field(repr=False, compare=False)

    def position(self, path: PathInTree) -> Position:
        """Where the key (or list item) at `path` stands, or its nearest known ancestor."""
        return self._at(self._find(path)[0])

    def value_position(self, path: PathInTree) -> Position:
        """Where the value at `path` begins, or the nearest known ancestor's."""
        return self._at(self._find(path)[1])

    def get(self, path: PathInTree) -> Any:
        """The value at `path`, or None."""
        found = self._find(path)
        return found[2].value if found[3] else None

    def text(self, path: PathInTree) -> str | None:
        """The scalar at `path` as it is written in the file (`26.10`, not 26.1); None for anything else."""
        found = self._find(path)
        return found[2].text if found[3] else None

    def path_text(self, path: PathInTree) -> str:
        """The path in words for people: `servers[ondemand].pools[small].gpu`."""
        return readable_path(self.tree, path)

    def problem(
        self,
        path: PathInTree,
        what: str,
        why: str = "",
        do: str = "",
        *,
        at: Literal["key", "value"] = "key",
        severity: Literal["error", "advisory"] = "error",
    ) -> Problem:
        """A problem at `path` of this file, for rules that look at the whole definition."""
        where = self.position(path) if at == "key" else self.value_position(path)
        return Problem(where, self.path_text(path), what, why, do, severity)

    def _at(self, mark: Any) -> Position:
        return Position(self.file, mark.line + 1, mark.column + 1)

    def _find(self, path: PathInTree) -> tuple[Any, Any, Node, bool]:
        key, value, node = self._root.mark, self._root.mark, self._root
        for step in path:
            if isinstance(step, str) and step in node.members:
                key, value, node = node.members[step]
            elif isinstance(step, int) and 0 <= step < len(node.items):
                value, node = node.items[step]
                key = value
            else:
                return key, value, node, False
        return key, value, node, True


def load(path: Path | str) -> Document:
    """Read a definition file; raise DefinitionError with every problem that stands in the way."""
    file = str(path)
    return parse(read_text(file), file)


def parse(text: str, file: str) -> Document:
    """Read a definition from text in memory; `file` is the name that its positions and problems carry."""
    text = text.removeprefix("\ufeff")
    check_text(text, file)
    composer = Composer(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            composer.take(event)
    except StopReading:
        pass
    except yaml.MarkedYAMLError as error:
        composer.found.append(syntax_problem(error, text, file, composer.open_marks()))
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML's own parser lets wild \U escapes through
        composer.found.append(Problem(file, "", "the file is not valid YAML", escaped(str(error))))
    problems = composer.problems()
    if problems:
        raise DefinitionError(problems)
    root = composer.root
    if root is None or root.value is None:
        refuse(file, "the file is empty", do="Write it anew, or take it from version control.")
    if not isinstance(root.value, dict):
        refuse(
            Position(file, root.mark.line + 1, root.mark.column + 1),
            f"a definition is a mapping of keys to values, but this is {kind_of(root.value)}",
            do="Begin each line at the margin with a key and a colon, as in `servers:`.",
        )
    return Document(root.value, file, root)
