"""Names of models and servers that are safe in a path, in a URL, in a registry and in a routing table."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

RULE: Final = "use 1 to 127 letters, digits, '_', '-' and '.', without '.' or '-' at the start"
SERVED_NAME_RULE: Final = "use 1 to 255 letters, digits, '_', '-', '.' and ':', in parts separated by '/'"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}")  # The definition and the proxy have the same rule.


def is_name(text: str) -> bool:
    """Return whether a text is a valid name."""
    return _NAME.fullmatch(text) is not None


def alike(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar, ignoring case, or None if none is near."""
    folded = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), folded, 1, 0.65)
    return folded[found[0]] if found else None


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a hint with the most similar name, or `otherwise` if none is near."""
    near = alike(name, known)
    return f"did you mean {near}?" if near else otherwise


def nearest_of(name: str, known: Iterable[str], what: str) -> str:
    """Return a hint with the most similar name, or with all names. `what` they are is in the plural."""
    names = list(known)
    return nearest(name, names, f"the {what} are {', '.join(names)}" if names else f"there are no {what}")
