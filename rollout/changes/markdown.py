"""Markdown that GitHub and GitLab read alike, in which no foreign text can be anything but text.

What comes from a definition stands between `<code>` tags with its punctuation as entities: so it is no table's edge, no
HTML, no link, no mention and no command to the platform, whatever is in it, and no fence has to be counted.
"""

import re
from collections.abc import Iterable, Sequence

from stacks.problems import escaped

LIMIT = 65_536
"""Longest comment that GitHub takes; GitLab takes more."""

# Punctuation that means nothing inside a line to any Markdown, nor to what the platforms make of texts afterwards.
_HARMLESS = frozenset(" ,.-/=()?;+")
_WEB = re.compile(r"(?i)\bwww\.")
_NO_WIDTH = "&#8203;"
_CALLS = frozenset("@#!~%$&")
"""Signs that make a mention or a reference of the word after them, even where they are written as entities."""


def code(text: str) -> str:
    """Return a foreign text as code."""
    return f"<code>{_entities(text)}</code>" if text else ""


def prose(text: str) -> str:
    """Return a text with foreign words in it as running text."""
    return _entities(text, _NO_WIDTH)


def preformatted(text: str) -> str:
    """Return foreign lines as they are."""
    return "<pre>\n" + "\n".join(map(_entities, text.splitlines())) + "\n</pre>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are Markdown already."""
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def folded(summary: str, lines: Iterable[str]) -> list[str]:
    """Return lines that show when somebody opens them; the summary is Markdown already, of one line."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def size(text: str) -> int:
    """Return what a text counts: its bytes, which are never fewer than its characters."""
    return len(text.encode("utf-8", "replace"))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _entities(text: str, after_calls: str = "") -> str:
    """Return one line with its punctuation as entities."""
    out = "".join(_entity(sign) + (after_calls if sign in _CALLS else "") for sign in escaped(text))
    out = out.replace("&#58; ", ": ")  # begins neither an address nor a smiley
    return _WEB.sub(lambda found: f"{found[0][:-1]}&#46;", out)  # else it would be a link


def _entity(sign: str) -> str:
    return sign if sign.isalnum() or sign in _HARMLESS or ord(sign) > 0x7F else f"&#{ord(sign)};"
