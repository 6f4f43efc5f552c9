"""Suggests the name that was probably meant, in the same words everywhere."""

import difflib
import re
from collections.abc import Iterable
from typing import Any

from policies.guardrails.checking import printable

_LONGEST_WORD = 200


def nearest(word: Any, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the choice most similar to `word`, or an empty string. idle_seconds and idleSeconds are equal here."""
    if not isinstance(word, str) or len(word) > _LONGEST_WORD:
        return ""
    plain: dict[str, str] = {}
    for choice in choices:
        plain.setdefault(_folded(choice), choice)
    near = difflib.get_close_matches(_folded(word), plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else ""


def did_you_mean(near: str) -> str:
    """Return a question with a choice, followed by a space, or an empty string without one."""
    return f'Did you mean "{printable(near)}"? ' if near else ""


def _folded(word: str) -> str:
    return re.sub(r"[_\-\s]", "", word).lower()
