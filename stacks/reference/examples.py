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
                    if text := self._cut(place, index if isinstance(value, list) else None, key is not None):
                        return text
                    break
        return None

    def _places(self, path: tuple[str, ...]) -> Iterator[Path]:
        """Yield where a path of keys stands: in the common part, then in what is laid over it."""
        yield from _walk(self.document.tree, path, ())
        if path[0] not in _OVERLAYS:
            for section in _OVERLAYS:
                yield from _walk(self.document.tree, (section, *path), ())

    def _cut(self, place: Path, index: int | None, one: bool) -> str | None:
        """Return the lines of a key, of a list only as many items as are short enough (or the one at `index`)."""
        start, end = self._span(place)
        if end <= start:
            return None
        rows = list(range(start, end))
        if index is not None and len(rows) > 1:
            count = len(self.document.get(place))
            wanted = [index] if one else list(range(count))
            spans = [self._span((*place, item)) for item in wanted]
            shown = list(range(start, self._span((*place, 0))[0]))
            for number, (first, last) in enumerate(spans):
                if number == 0 or len(shown) + last - first <= _MOST_LINES:
                    shown += range(first, last)
                else:
                    break
            rows = shown
        column = self.document.position(place).column - 1
        first_line = " " * column + self.lines[rows[0]][column:]
        text = dedent("\n".join([first_line, *(self.lines[row] for row in rows[1:])]))
        return "\n".join(line.rstrip() for line in text.splitlines())

    def _span(self, place: Path) -> tuple[int, int]:
        """Return the rows of a key or item: from where it begins to where the next one does, without its comments."""
        start = self.document.position(place).line - 1
        end = len(self.lines)
        for depth in range(len(place), 0, -1):
            if following := self._next(place[:depth]):
                end = self.document.position(following).line - 1
                break
        while end > start + 1 and self.lines[end - 1].strip()[:1] in ("", "#"):
            end -= 1
        return start, end

    def _next(self, place: Path) -> Path | None:
        """Return the key or item after this one in its mapping or list."""
        *above, last = place
        parent = self.document.get(above)
        steps: list[str | int] = list(range(len(parent))) if isinstance(parent, list) else list(parent)
        rest = steps[steps.index(last) + 1 :]
        return (*above, rest[0]) if rest else None


def _walk(tree: Any, path: tuple[str, ...], done: Path) -> Iterator[Path]:
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _walk(item, path, (*done, index))
    elif not path:
        yield done
    elif isinstance(tree, dict) and path[0] in tree:
        key, *rest = path
        if rest:
            yield from _walk(tree[key], tuple(rest), (*done, key))
        else:
            yield (*done, key)
