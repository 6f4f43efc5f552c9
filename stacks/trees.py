"""Plain trees of mappings, lists and scalars."""

from collections.abc import Mapping
from typing import Any


def frozen(tree: Any) -> Any:
    """Return the tree with tuples for lists, which is what the typed model holds."""
    if isinstance(tree, Mapping):
        return {key: frozen(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return tuple(frozen(value) for value in tree)
    return tree
