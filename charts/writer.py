"""What the writers of YAML and of JSON files have in common: actions, guards and texts."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .go import both, enclosed, go_text, types_of
from .recording import TOKEN, Branch, Guard, Recording, Value

Lines = Iterator[str]

_WIDTH = 120
_WORDS = re.compile(r'(?:"[^"]*"|`[^`]*`|\S)+')


def indented(indent: int, text: str) -> str:
    """Return a line."""
    return f"{' ' * indent}{text}"


def action(text: str, indent: int = 0) -> str:
    """Return an action that writes nothing itself, on as many lines as it needs."""
    whole = f"{{{{- {text} }}}}"
    if indent + len(whole) <= _WIDTH:
        return indented(indent, whole)
    lines = [""]
    for word in _WORDS.findall(whole):
        if indent + len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("     ")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(indented(indent, line) for line in lines)


class Writer:
    """Writes guards. A condition that is known to hold is not asked again."""

    def __init__(self, recording: Recording, known: Iterable[str] = ()) -> None:
        self.recording = recording
        self.known = list(known)

    def guarded(self, branch: Branch, body: Callable[[Any], Lines], indent: int) -> Lines:
        """Yield a loop or a branch."""
        branch = self._flat(branch)
        assert isinstance(branch.mark, Guard)
        if branch.is_condition and branch.mark.condition in self.known:
            yield from body(branch.body)
            return
        yield action(branch.mark.opening, indent)
        yield from self.under(branch.mark.condition, body(branch.body))
        other = branch.otherwise
        while (inner := self.condition_alone(other)) is not None:
            assert isinstance(inner.mark, Guard)
            yield action(f"else {inner.mark.opening}", indent)
            yield from body(inner.body)
            other = inner.otherwise
        if other is not None:
            yield action("else", indent)
            yield from body(other)
        yield action("end", indent)

    def when(self, condition: str, lines: Lines, indent: int) -> Lines:
        """Yield lines below a condition; below none where it is empty or known to hold."""
        if not condition or condition in self.known:
            yield from lines
            return
        yield action(f"if {condition}", indent)
        yield from self.under(condition, lines)
        yield action("end", indent)

    def under(self, condition: str, lines: Lines) -> Lines:
        """Yield lines that stand where a condition holds."""
        self.known.append(condition)
        yield from lines
        self.known.pop()

    def condition_alone(self, body: Any) -> Branch | None:
        """Return the condition that a body consists of, if it does."""
        branches = self.recording.only_branches(body) if isinstance(body, dict) and body else []
        return branches[0] if len(branches) == 1 and branches[0].is_condition else None

    def _flat(self, branch: Branch) -> Branch:
        """Return a condition that holds nothing but a condition as one."""
        inner = self.condition_alone(branch.body)
        if not branch.is_condition or branch.otherwise is not None or inner is None or inner.otherwise is not None:
            return branch
        assert isinstance(branch.mark, Guard)
        assert isinstance(inner.mark, Guard)
        condition = both(branch.mark.condition, inner.mark.condition)
        return self._flat(Branch(Guard(f"if {condition}", condition), inner.body))

    def text(self, text: str) -> str:
        """Return the expression of a text that is composed of values."""
        layout, values = "", []
        for position, part in enumerate(TOKEN.split(text)):
            if position % 3 == 0:
                layout += part.replace("%", "%%")
            elif position % 3 == 2:
                mark = self.recording.marks[int(part)]
                assert isinstance(mark, Value), f"{text!r}: a loop or a branch cannot stand in a text"
                is_number = types_of(mark.kind) == (int,)
                layout += "%d" if is_number else "%s"
                values.append(number(mark) if is_number else known(mark))
        if layout in ("%s", "%d"):
            return values[0]
        return f"printf {go_text(layout)} {' '.join(map(enclosed, values))}"


def known(mark: Value) -> str:
    """Return the expression of a value, or of its default where it is missing."""
    expression, default = mark.expression, mark.default
    if default is None or isinstance(default, tuple | list | dict):
        return expression
    if isinstance(default, int) and default:
        return f"ternary {expression} {default} (ne {expression} nil)"  # zero is a value too
    return f"{expression} | default {go_text(default) if isinstance(default, str) else str(default).lower()}"


def number(mark: Value) -> str:
    """Return the expression of an integer, which Helm reads as a floating-point number."""
    expression = known(mark)
    return expression if expression.startswith(("add ", "div ")) else f"int64 {enclosed(expression)}"
