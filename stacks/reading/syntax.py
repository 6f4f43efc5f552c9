"""Errors of YAML syntax in plain words."""

import re
from typing import Any

import yaml

from ..problems import Position, Problem, escaped
from .files import LINE_BREAK

_QUOTE_SIGN = 'Quote the text, as in `key: "@value"`; these signs have a meaning of their own: @ ` % & * ! | > { [.'
_INDENT = "Give keys of one mapping the same indentation, and what belongs to a key two spaces more."
# What PyYAML says (in its context and problem; both parsers' wordings) → whether to point at where the thing began,
# what we say, and what to do about it. The first that fits counts.
_WORDS: tuple[tuple[str, bool, str, str], ...] = (
    (r"quoted scalar.*(end of stream|document)", True, "the quote that opens here is never closed", "Close it."),
    (r"unknown escape character", False, r"a backslash in double quotes begins an escape, and this is none",
     r"Write \\ for a backslash, or use single quotes."),
    (r"escape code|escape sequence|hexadecimal", False, "the escape after this backslash is not complete or not valid",
     r"Write \\ for a backslash, or use single quotes."),
    (r"flow sequence.*',' or ']'", True, "the bracket [ that opens here is not closed, or a comma is missing in it",
     "Close it with ], and put commas between the items."),
    (r"flow mapping.*',' or '}'", True, "the brace { that opens here is not closed, or a comma is missing in it",
     "Close it with }, and put commas between the members."),
    (r"tab character", False, "a tab is used to indent", "Indent with spaces."),
    (r"mapping values are not allowed", False, "a colon that cannot stand here",
     "If it belongs to a text, quote the text; if it ends a key, check this line's indentation and the line above."),
    (r"(simple key|mapping keys|sequence entries).*are not allowed|block sequence entries", False,
     "a list item (-) or key cannot begin here", "Begin it on a line of its own, indented as its neighbours."),
    (r"expected ':'", True, "this line is not complete: a key is followed by a colon and a space",
     "Write `key: value`, or `- value` for an item of a list."),
    (r"scanning an alias", True, "a * at the beginning of a value is a YAML alias, and a name must follow it",
     'If this is a pattern, quote it: "*".'),
    (r"scanning an anchor", True, "a & at the beginning of a value is a YAML anchor, and a name must follow it",
     "Quote the text if the & belongs to it."),
    (r"tag", True, "a ! at the beginning of a value is a YAML tag, and this is none", "Quote the text."),
    (r"block scalar", False, "after | or > only an indicator (+, -, a digit) may stand, then a new line",
     "Begin the text on the next line, or quote it."),
    (r"cannot start any token", False, "a value cannot begin with this sign", _QUOTE_SIGN),
    (r"block collection", False, "this line does not fit the list above it: an item that begins with - is expected",
     _INDENT),
    (r"block mapping.*(expected key|<block end>)", False, "this does not fit what stands before it: a key is expected",
     _INDENT + " After a closing quote or bracket, nothing may follow."),
    (r"document start", False, "what follows here is outside of the definition",
     "Check this line's indentation, and for a stray `...` or `%` above."),
    (r"node content", False, "a value is expected here", "Write one, or quote the text if this sign belongs to it."),
    (r"incompatible|directive", False, "the line that begins with % is no directive that is known", "Remove it."),
)  # fmt: skip


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
    for pattern, at_begin, what, do in _WORDS:
        if re.search(pattern, said, re.DOTALL):
            at = (error.context_mark or mark) if at_begin else mark
            return Problem(Position(file, at.line + 1, at.column + 1), "", what, "", do)
    return Problem(Position(file, mark.line + 1, mark.column + 1), "", "the file is not valid YAML", escaped(said))


def _unclosed_at_end(mark: Any, lines: list[str], open_marks: list[Any]) -> Any:
    rest = lines[mark.line :]
    if rest and (rest[0][mark.column :].strip() or any(line.strip() for line in rest[1:])):
        return None
    brackets = [at for at in open_marks if lines[at.line][at.column : at.column + 1] in ("[", "{")]
    return brackets[-1] if brackets else None
