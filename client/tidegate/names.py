"""Names of models and servers: safe as a folder, in an address, in a registry and in a routing table."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

RULE: Final = "take letters, digits, '_', '-' and '.', not more than 127, and no '.' or '-' in front"
SERVED_NAME_RULE: Final = "take letters, digits, '_', '-', '.' and ':', in parts with '/' between, not more than 255"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}")  # As the definition and the proxy have it.


def is_name(text: str) -> bool:
    """Tell whether a text is such a name."""
    return _NAME.fullmatch(text) is not None


def alike(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most alike, whatever its case; None where none is near."""
    folded = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), folded, 1, 0.65)
    return folded[found[0]] if found else None


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the name that is meant, as a hint; `otherwise` where none is near."""
    near = alike(name, known)
    return f"did you mean {near}?" if near else otherwise


def nearest_of(name: str, known: Iterable[str], what: str) -> str:
    """Return the name that is meant, as a hint, or all the names that there are of `what` it is, in the plural."""
    names = list(known)
    return nearest(name, names, f"there are the {what} {', '.join(names)}" if names else f"there are no {what}")
