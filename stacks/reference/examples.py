"""Cuts examples out of a definition file, by the positions of its keys, so that they cannot go stale."""

from collections.abc import Iterator
from pathlib import Path as FilePath
from textwrap import dedent
from typing import Any

from ..load import Document, load

Path = tuple[str | int, ...]

_MOST_LINES = 16
_OVERLAYS = ("environments", "dataPlanes")


class Examples:
    """Finds the first place where a definition says something, and returns it as it stands there."""

    def __init__(self, file: FilePath) -> None:
        """Read the definition."""
        self.document: Document = load(file)
        self.lines = file.read_text(encoding="utf-8").splitlines()

    def of(self, path: tuple[str, ...], key: str | None = None, values: tuple[str, ...] = ()) -> str | None:
        """Return the YAML at a path of keys; with a key, only of a mapping that has it (with one of these values)."""
        for place in self._places(path):
            value = self.document.get(place)
            items = value if isinstance(value, list) else [value]
            for index, item in enumerate(items):
                if key is None or (isinstance(item, dict) and key in item and (not values or str(item[key]) in values)):
                    wanted = list(range(len(items))) if key is None else [index]
                    return self._cut(place, wanted if isinstance(value, list) else [])
        return None

    def _places(self, path: tuple[str, ...]) -> Iterator[Path]:
        """Yield where a path of keys stands: in the common part, then in what is laid over it."""
        yield from _walk(self.document.tree, path, ())
        if path[0] not in _OVERLAYS:
            for section in _OVERLAYS:
                yield from _walk(self.document.tree, (section, *path), ())

    def _cut(self, place: Path, items: list[int]) -> str:
        """Return the lines of a key; of a list only these items, and after the first as many as are short enough."""
        start, end = self._span(place)
        rows = list(range(start, end))
        if items and len(rows) > 1:
            rows = rows[: self._span((*place, 0))[0] - start]
            for number, item in enumerate(items):
                first, last = self._span((*place, item))
                if number > 0 and len(rows) + last - first > _MOST_LINES:
                    break
                rows += range(first, last)
        column = self.document.position(place).column - 1
        first_line = " " * column + self.lines[rows[0]][column:]
        text = dedent("\n".join([first_line, *(self.lines[row] for row in rows[1:])]))
        return "\n".join(line.rstrip() for line in text.splitlines())

    def _span(self, place: Path) -> tuple[int, int]:
        """Return the rows of a key or item: from where it begins, what is indented deeper, without comments behind."""
        at = self.document.position(place)
        # An item begins behind its dash, in the column of its further keys.
        least = at.column - 1 if isinstance(place[-1], int) else at.column
        end = at.line
        for row in range(at.line, len(self.lines)):
            text = self.lines[row].lstrip()
            if text[:1] not in ("", "#"):
                if len(self.lines[row]) - len(text) < least:
                    break
                end = row + 1
        return at.line - 1, end


def _walk(tree: Any, path: tuple[str, ...], done: Path) -> Iterator[Path]:
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _walk(item, path, (*done, index))
    elif isinstance(tree, dict) and path[0] in tree:
        key, *rest = path
        if rest:
            yield from _walk(tree[key], tuple(rest), (*done, key))
        else:
            yield (*done, key)
