"""Pages from texts with placeholders, and tables in Markdown."""

import re
from collections.abc import Iterable
from pathlib import Path


def filled(text: Path, **parts: str) -> str:
    """Return a text with each `<name>` replaced by its part, and at most one empty line in a row."""
    page = text.read_text("utf-8")
    for name, part in parts.items():
        page = page.replace(f"<{name}>", part.rstrip("\n"))
    return re.sub("\n{3,}", "\n\n", page).rstrip() + "\n"


def table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    cells = [[" ".join(text.split()).replace("|", "\\|") for text in row] for row in rows]
    head, *body = (f"| {' | '.join(row)} |\n" for row in (heading, *cells))
    return "".join([head, f"|{'---|' * len(heading)}\n", *body])
