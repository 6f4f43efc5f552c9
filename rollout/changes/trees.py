"""Reads objects of which nobody knows how well-formed they are: another version, a hand or a cluster wrote them."""

from collections.abc import Iterator, Mapping
from typing import Any


def at(tree: Any, *path: str) -> Any:
    """Return what stands at a path; None where there is nothing."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def mapping(tree: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; an empty one where there is none."""
    found = at(tree, *path)
    return found if isinstance(found, Mapping) else {}


def items(tree: Any, *path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings in the list at a path."""
    found = at(tree, *path)
    yield from (item for item in found if isinstance(item, Mapping)) if isinstance(found, list) else ()


def number(tree: Any, *path: str, default: int) -> int:
    """Return the whole number at a path that is not negative, or the default."""
    found = at(tree, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else default


def text(tree: Any, *path: str, default: str = "") -> str:
    """Return the text at a path, or the default."""
    found = at(tree, *path)
    return found if isinstance(found, str) else default
