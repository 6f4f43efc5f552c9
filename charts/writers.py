"""Write a recording as text with Helm's actions: objects as YAML, and the trees of JSON files.

The text of a JSON file has a comma after every item. Helm reads it as YAML, and writes JSON.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .arguments import is_list, is_mapping, item_type
from .recording import AS_TEXT, TOKEN, Branch, File, Guard, Recording, Spread, Value, both, enclosed, go_text, types_of
from .values_file import scalar

Lines = Iterator[str]

_WIDTH = 120
_WORDS = re.compile(r'(?:"[^"]*"|`[^`]*`|\S)+')
_HEAD = ("apiVersion", "kind", "metadata", "name", "namespace")


def indented(indent: int, text: str) -> str:
    """Return a text after a number of spaces."""
    return f"{' ' * indent}{text}"


def action(text: str, indent: int = 0) -> str:
    """Return an action without output, on as many lines as it needs."""
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
    """Writes guards. It does not repeat a condition that is known to be true."""

    def __init__(self, recording: Recording, known: Iterable[str] = ()) -> None:
        self.recording = recording
        self.known = list(known)

    def guarded(self, branch: Branch, body: Callable[[Any], Lines], indent: int) -> Lines:
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
        """Yield lines within a condition, or without it if it is empty or known to be true."""
        if not condition or condition in self.known:
            yield from lines
            return
        yield action(f"if {condition}", indent)
        yield from self.under(condition, lines)
        yield action("end", indent)

    def under(self, condition: str, lines: Lines) -> Lines:
        """Yield lines for which a condition is known to be true."""
        self.known.append(condition)
        yield from lines
        self.known.pop()

    def condition_alone(self, body: Any) -> Branch | None:
        """Return the condition if the body consists of one conditional, else None."""
        branches = self.recording.only_branches(body) if isinstance(body, dict) and body else []
        return branches[0] if len(branches) == 1 and branches[0].is_condition else None

    def _flat(self, branch: Branch) -> Branch:
        """Return nested conditions as one, if the outer one contains nothing else."""
        inner = self.condition_alone(branch.body)
        if not branch.is_condition or branch.otherwise is not None or inner is None or inner.otherwise is not None:
            return branch
        assert isinstance(branch.mark, Guard)
        assert isinstance(inner.mark, Guard)
        condition = both(branch.mark.condition, inner.mark.condition)
        return self._flat(Branch(Guard(f"if {condition}", condition), inner.body))

    def plain(self, mark: Value) -> str:
        """Return the action that writes a text, number or truth value."""
        types = types_of(mark.kind)
        return f"{{{{ {mark.known} | quote }}}}" if types == (str,) else f"{{{{ {self.number(mark)} }}}}"

    def number(self, mark: Value) -> str:
        """Return the expression of a value that is not a text. Helm reads integers as floating-point numbers."""
        is_whole = types_of(mark.kind) != (int,) or mark.known.startswith(("add ", "div ", "int64 ", "mul "))
        return mark.known if is_whole else f"int64 {enclosed(mark.known)}"

    def text(self, text: str) -> str:
        layout, values = "", []
        for position, part in enumerate(TOKEN.split(text)):
            if position % 3 == 0:
                layout += part.replace("%", "%%")
            elif position % 3 == 2:
                mark = self.recording.marks[int(part)]
                assert isinstance(mark, Value), f"{text!r}: a text cannot contain a loop or a branch"
                is_number = types_of(mark.kind) == (int,)
                layout += "%d" if is_number else "%s"
                values.append(self.number(mark))
        if layout in ("%s", "%d"):
            return values[0]
        return f"printf {go_text(layout)} {' '.join(map(enclosed, values))}"


class JsonWriter(Writer):
    """Writes the tree of a JSON file."""

    def whole(self, tree: Any) -> str:
        return "\n".join(self._tree("", tree, 0)).removesuffix(",")

    def _tree(self, start: str, value: Any, indent: int) -> Lines:
        """Yield the lines of a value behind its key, or nothing if it is missing."""
        is_loop = isinstance(value, Mapping) and any(one.is_loop for one in self.recording.branches(value))
        if (branch := self.condition_alone(value)) is not None:
            yield from self.guarded(branch, lambda body: self._tree(start, body, indent), indent)
        elif isinstance(value, list | tuple) or is_loop:
            yield indented(indent, f"{start}[")
            yield from self._items(value, indent + 2)
            yield indented(indent, "],")
        elif isinstance(value, Mapping):
            yield indented(indent, f"{start}{{")
            yield from self._entries(value, indent + 2)
            yield indented(indent, "},")
        elif value is not None:
            mark = self.recording.mark(value)
            condition = mark.there if isinstance(mark, Value) and mark.optional else ""
            yield from self.when(condition, iter([indented(indent, f"{start}{self._scalar(value)},")]), indent)

    def _entries(self, tree: Mapping[str, Any], indent: int) -> Lines:
        for key in sorted(key for key in tree if not self.recording.mark(key)):
            yield from self._tree(f"{json.dumps(key)}: ", tree[key], indent)
        for branch in self.recording.branches(tree):
            yield from self.guarded(branch, lambda body: self._entries(body, indent), indent)

    def _items(self, values: Any, indent: int) -> Lines:
        for value in values if isinstance(values, list | tuple) else [values]:
            branches = self.recording.only_branches(value) if isinstance(value, Mapping) and value else []
            for branch in branches:
                yield from self.guarded(branch, lambda body: self._items(body, indent), indent)
            if not branches:
                yield from self._tree("", value, indent)

    def _scalar(self, value: Any) -> str:
        mark = self.recording.mark(value)
        if isinstance(mark, Value) and is_list(mark.kind):
            return f"[{{{{ range {mark.known} }}}}{{{{ . | quote }}}}, {{{{ end }}}}]"
        if isinstance(mark, Value) and is_mapping(mark.kind):
            return f"{{{{ toJson {mark.expression} }}}}"
        if isinstance(mark, Value) and not value.startswith(AS_TEXT):
            return self.plain(mark)
        if isinstance(value, str) and TOKEN.search(value):
            return f"{{{{ {self.text(value)} | quote }}}}"
        return json.dumps(value, ensure_ascii=False)


class YamlWriter(Writer):
    """Writes objects. The trees of their files become named templates."""

    def mapping(self, tree: Mapping[str, Any], indent: int) -> Lines:
        """Yield the lines of a mapping: its head first, then keys by name, then optional keys."""
        keys = [key for key in tree if not self.recording.mark(key)]
        for key in sorted(keys, key=lambda key: self._place(key, tree[key])):
            yield from self.entry(key, tree[key], indent)
        for branch in self.recording.branches(tree):
            if isinstance(branch.mark, Spread):
                names = " ".join(map(go_text, branch.mark.without))
                given = branch.mark.expression
                yield from self._entries(f"omit ({given} | default dict) {names}" if names else given, indent)
            else:
                yield from self.guarded(branch, lambda body: self.mapping(body, indent), indent)

    def _place(self, key: str, value: Any) -> tuple[bool, int, str]:
        return bool(self.recording.presence(value)), _HEAD.index(key) if key in _HEAD else len(_HEAD), key

    def entry(self, key: str, value: Any, indent: int) -> Lines:
        """Yield the lines of a key and its value, or nothing if the value is missing."""
        if (branch := self.condition_alone(value)) is not None:
            yield from self.guarded(branch, lambda body: self.entry(key, body, indent), indent)
        else:
            yield from self.when(self.recording.presence(value), self._value(key, value, indent), indent)

    def _value(self, key: str, value: Any, indent: int) -> Lines:
        written = f"{{{{ {self.text(key)} | quote }}}}" if TOKEN.search(key) else scalar(key)
        start = indented(indent, f"{written}:")
        mark = self.recording.mark(value)
        if isinstance(mark, File):
            yield from self._file(start, key, mark, indent)
        elif isinstance(mark, Value) and is_mapping(mark.kind):
            yield start
            yield from self._entries(mark.expression, indent + 2)
        elif isinstance(mark, Value) and is_list(mark.kind):
            yield start
            yield action(f"range {mark.known}", indent + 2)
            yield indented(indent + 2, f"- {self.plain(Value('.', item_type(mark.kind)))}")
            yield action("end", indent + 2)
        elif isinstance(value, Mapping | list) and value:
            yield start
            is_loop = isinstance(value, Mapping) and any(one.is_loop for one in self.recording.branches(value))
            yield from self.items(value, indent + 2) if is_loop else self._tree(value, indent + 2)
        else:
            yield f"{start} {self._scalar(value, indent + 2)}"

    def _tree(self, value: Any, indent: int) -> Lines:
        return self.mapping(value, indent) if isinstance(value, Mapping) else self.items(value, indent)

    def items(self, values: Any, indent: int) -> Lines:
        for value in values if isinstance(values, list) else [values]:
            if not isinstance(value, Mapping) or not value:
                yield indented(indent, f"- {self._scalar(value, indent + 2)}")
            elif branches := self.recording.only_branches(value):
                for branch in branches:
                    yield from self.guarded(branch, lambda body: self.items(body, indent), indent)
            else:
                yield from self._item(list(self.mapping(value, indent + 2)), indent)

    def _item(self, lines: list[str], indent: int) -> Lines:
        first, *rest = lines
        assert not first.lstrip().startswith("{{-"), f"an item needs a key that is always there: {lines}"
        yield indented(indent, f"- {first.lstrip()}")
        yield from rest

    def _entries(self, expression: str, indent: int) -> Lines:
        yield action(f"range $key, $value := {expression}", indent)
        yield indented(indent, "{{ $key | quote }}: {{ $value | quote }}")
        yield action("end", indent)

    def _file(self, start: str, key: str, mark: File, indent: int) -> Lines:
        name = f"tidegate.{key.rpartition('/')[2]}"
        included = self.recording.named(name, JsonWriter(self.recording).whole(mark.tree))
        if mark.is_checksum:
            yield f'{start} {{{{ {included} | fromYaml | toPrettyJson | printf "%s\\n" | sha256sum | quote }}}}'
        else:
            yield f"{start} |"
            yield action(f"{included} | fromYaml | toPrettyJson | nindent {indent + 2}", indent + 2)

    def _scalar(self, value: Any, indent: int) -> str:
        if isinstance(value, Mapping | list):
            return "{}" if isinstance(value, Mapping) else "[]"
        if not isinstance(value, str):
            return scalar(value)
        mark = self.recording.mark(value)
        if isinstance(mark, Value) and not value.startswith(AS_TEXT):
            return self.plain(mark)
        if TOKEN.search(value):
            return f"{{{{ {self.text(value)} | quote }}}}"
        if _is_block(value):
            lines = [indented(indent, line) if line else "" for line in value.rstrip("\n").split("\n")]
            return "\n".join(["|" if value.endswith("\n") else "|-", *lines])
        return f"{{{{ {go_text(value)} | quote }}}}" if "{{" in value else scalar(value)


def _is_block(text: str) -> bool:
    """Return whether a text can be written as a block of lines without changes."""
    lines = text.removesuffix("\n").split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and plain and bool(lines[-1]) and not lines[0].startswith((" ", "#")) and "{{" not in text
