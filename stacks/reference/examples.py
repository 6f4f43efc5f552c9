"""Takes examples out of a definition, so that they cannot go stale."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ..load import load
from ..validate import OVERLAID

_MOST_LINES = 16


class Examples:
    """Finds the first place where a definition says something, and returns it as YAML."""

    def __init__(self, file: Path) -> None:
        """Read the definition."""
        self.tree = load(file).tree

    def of(self, path: tuple[str, ...], key: str | None = None, values: tuple[str, ...] = ()) -> str | None:
        """Return the YAML at a path of keys; with a key, only of a mapping that has it (with one of these values)."""
        # What the common part does not say, an environment or data plane may.
        overlays = [_values(self.tree, (section, *path)) for section in OVERLAID if path[0] not in OVERLAID]
        for value in [found for place in (_values(self.tree, path), *overlays) for found in place]:
            if key is None:
                return _shortened(path[-1], value)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, dict) and key in item and (not values or str(item[key]) in values):
                    return _shortened(path[-1], [item] if isinstance(value, list) else item)
        return None


def _values(tree: Any, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield tree
    elif isinstance(tree, list):
        for item in tree:
            yield from _values(item, path)
    elif isinstance(tree, dict) and path[0] in tree:
        yield from _values(tree[path[0]], path[1:])


def _shortened(key: str, value: Any) -> str:
    """Return a key and its value; of a list only as many items as are short enough."""
    text = yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
    if isinstance(value, list) and len(value) > 1 and len(text.splitlines()) > _MOST_LINES:
        return _shortened(key, value[:-1])
    return text.rstrip()
