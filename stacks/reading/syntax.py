"""Errors of YAML syntax in plain words."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..problems import Position, Problem, escaped
from .files import LINE_BREAK


@cache
def _said() -> list[dict[str, str]]:
    """Return what is said of each error that the parser knows: its file explains the keys."""
    return list(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8")))


def syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str, open_marks: list[Any]) -> Problem:
    """Return the problem that the parser's error stands for; `open_marks` say what was not yet closed."""
    said = f"{error.context or ''} {error.problem or ''}"
    mark: Any = error.problem_mark or error.context_mark
    lines = LINE_BREAK.split(text)
    begun = lines[mark.line][: mark.column + 1] if mark.line < len(lines) else ""
    if begun and not begun.strip() and "\t" in begun:
        where = Position(file, mark.line + 1, begun.index("\t") + 1)
        return Problem(where, "", "a tab is used to indent", "YAML allows spaces only.", "Indent with spaces.")
    if "quoted" not in said and (opened := _unclosed_at_end(mark, lines, open_marks)):
        where = Position(file, opened.line + 1, opened.column + 1)
        return Problem(where, "", "the bracket that opens here is never closed", "", "Close it with ] or }.")
    for each in _said():
        if re.search(each["pattern"], said, re.DOTALL):
            at = (error.context_mark or mark) if each.get("at") == "begin" else mark
            return Problem(Position(file, at.line + 1, at.column + 1), "", each["what"], "", each["do"])
    return Problem(Position(file, mark.line + 1, mark.column + 1), "", "the file is not valid YAML", escaped(said))


def _unclosed_at_end(mark: Any, lines: list[str], open_marks: list[Any]) -> Any:
    rest = lines[mark.line :]
    if rest and (rest[0][mark.column :].strip() or any(line.strip() for line in rest[1:])):
        return None
    brackets = [at for at in open_marks if lines[at.line][at.column : at.column + 1] in ("[", "{")]
    return brackets[-1] if brackets else None
