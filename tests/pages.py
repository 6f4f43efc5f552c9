"""Blocks of commands on the pages of the documentation, with the output that a page shows for each."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A block of a page. `shown` is the output below it."""

    language: str
    text: str
    shown: str
    runs: bool


def examples(page: str) -> list[Example]:
    """Return the blocks of a page that are no output."""
    found = _BLOCK.findall((ROOT / page).read_text("utf-8"))
    made = []
    for (not_run, language, text), (_, after, output) in zip(found, [*found[1:], ("", "", "")], strict=True):
        if language not in ("text", "json"):
            shown = output if after in ("text", "json") else ""
            made.append(Example(language, text, shown, not not_run))
    return made


def as_pattern(shown: str) -> re.Pattern[str]:
    """Return what matches: `…` is anything within a line, and alone in a line any lines, or none."""
    parts = []
    for line in shown.splitlines():
        anything = r"(?:[^\n]*\n)*?" if line.strip() == "…" else ""
        parts.append(anything or "[^\n]*".join(map(re.escape, line.split("…"))) + r" *\n")
    return re.compile("".join(parts))
