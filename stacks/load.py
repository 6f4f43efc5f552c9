"""Reads a definition file: YAML 1.2 values as a plain tree, with the line and column of each.

Every problem of a file raises a `DefinitionError`, never another exception. `stacks.reading` does the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from .problems import DefinitionError, Position, Problem, Severity, escaped, member, readable_path
from .reading.files import check_text, read_text, refuse
from .reading.tree import Node, Reader, StopReading, kind_of, loader_of

PathInTree = Sequence[str | int]
At = Literal["key", "value"] | None  # The place of a problem, or None for the document's default.

_LOADER: Any = loader_of(getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@dataclass(eq=False)
class Document:
    """A tree with the positions of its values in a file: a whole file, or merged layers of its parts."""

    tree: dict[str, Any]
    file: str
    root: Node = field(repr=False)
    shown_at: At = "key"  # The default place of problems.

    def node(self, path: PathInTree) -> tuple[Node, bool]:
        """Return the node of a value, or of its nearest known ancestor, and whether the value exists."""
        node = self.root
        for step in path:
            below = node.parts.get(step)
            if below is None:
                return node, False
            node = below
        return node, True

    def position(self, path: PathInTree) -> Position:
        """Return the position of a key or list item, or of its nearest known ancestor."""
        return self.node(path)[0].key

    def value_position(self, path: PathInTree) -> Position:
        """Return the position of a value, or of its nearest known ancestor."""
        return self.node(path)[0].at

    def get(self, path: PathInTree) -> Any:
        value: Any = self.tree
        for step in path:
            value = member(value, step)
        return value

    def text(self, path: PathInTree) -> str | None:
        """Return the source text of the scalar at `path` (`26.10`, not 26.1), or None for anything else."""
        node, is_there = self.node(path)
        return node.text if is_there else None

    def path_text(self, path: PathInTree) -> str:
        """Return a path as `servers[ondemand].pools[small].gpu`."""
        return readable_path(self.tree, path)

    def problem(
        self, path: PathInTree, what: str, why: str = "", do: str = "", *, at: At = None, severity: Severity = "error"
    ) -> Problem:
        where = self.position(path) if (at or self.shown_at) == "key" else self.value_position(path)
        return Problem(where, self.path_text(path), what, why, do, severity)


def frozen(tree: Any) -> Any:
    """Return a plain tree with tuples instead of lists, which the typed model needs."""
    if isinstance(tree, dict):
        return {key: frozen(value) for key, value in tree.items()}
    return tuple(frozen(value) for value in tree) if isinstance(tree, list) else tree


def load(path: Path | str) -> Document:
    """Read a definition file. Raises DefinitionError with every problem of its syntax."""
    file = str(path)
    return parse(read_text(file), file)


def parse(text: str, file: str) -> Document:
    """Read a definition from a text. `file` is the name in positions and problems."""
    text = text.removeprefix("\ufeff")
    check_text(text, file)
    reader = Reader(file)
    try:
        reader.read(text, _LOADER)
    except StopReading:
        pass
    except yaml.MarkedYAMLError as error:
        reader.found.append(_syntax_problem(error, file))
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML accepts \U escapes beyond Unicode.
        reader.found.append(Problem(file, "", "the file is not valid YAML", escaped(str(error))))
    root = reader.root
    if problems := reader.problems():
        raise DefinitionError(problems)
    if root is None or root.value is None:
        refuse(file, "the file is empty", do="Write a definition, or restore it from version control.")
    if not isinstance(root.value, dict):
        what = f"a definition is a mapping of keys to values, but this is {kind_of(root.value)}"
        refuse(root.at, what, do="Start each line at the margin with a key and a colon, as in `servers:`.")
    return Document(root.value, file, root)


def _syntax_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    """Return the parser's error, with the place where it failed, and the start of the value that it could not read."""
    mark = error.problem_mark or error.context_mark
    begun = error.context_mark if error.context_mark not in (None, mark) else None
    why = f"{error.context} that begins in line {begun.line + 1}." if begun and error.context else ""
    do = "Check quotes, brackets, colons, and indentation (no tabs). Quote texts that begin with *, &, ! or @."
    where = Position(file, mark.line + 1, mark.column + 1) if mark else file
    what = f"the file is not valid YAML: {escaped(error.problem or error.context or str(error))}"
    return Problem(where, "", what, escaped(why[:1].upper() + why[1:]), do)
