"""Writes objects that components declared with placeholders as YAML with Helm's actions."""

from collections.abc import Iterable, Mapping
from typing import Any

from .arguments import is_list, item_type
from .comments import Comments
from .go import enclosed, go_text, is_mapping, types_of
from .json_writer import JsonWriter
from .recording import AS_TEXT, TOKEN, File, Recording, Spread, Value
from .values_file import scalar
from .writer import Lines, Writer, action, indented, known, number

_HEAD = ("apiVersion", "kind", "metadata", "name", "namespace")


class YamlWriter(Writer):
    """Writes objects; the trees of their files become named templates."""

    def __init__(self, recording: Recording, comments: Comments, known: Iterable[str] = ()) -> None:
        super().__init__(recording, known)
        self.comments = comments

    def mapping(self, tree: Mapping[str, Any], indent: int) -> Lines:
        """Yield the lines of a mapping: its head first, what may be missing last, else by name."""
        keys = [key for key in tree if not self.recording.mark(key)]
        for key in sorted(keys, key=lambda key: self._place(key, tree[key])):
            if text := self.comments.of_key(key, tree):
                yield indented(indent, f"# {text}")
            yield from self.entry(key, tree[key], indent)
        for branch in self.recording.branches(tree):
            if isinstance(branch.mark, Spread):
                yield from self._entries(_without(branch.mark), indent)
            else:
                yield from self.guarded(branch, lambda body: self.mapping(body, indent), indent)

    def _place(self, key: str, value: Any) -> tuple[bool, int, str]:
        return bool(self.recording.presence(value)), _HEAD.index(key) if key in _HEAD else len(_HEAD), key

    def entry(self, key: str, value: Any, indent: int) -> Lines:
        """Yield the lines of a key and its value; nothing where the value is missing."""
        if (branch := self.condition_alone(value)) is not None:
            yield from self.guarded(branch, lambda body: self.entry(key, body, indent), indent)
        else:
            yield from self.when(self.recording.presence(value), self._value(key, value, indent), indent)

    def _value(self, key: str, value: Any, indent: int) -> Lines:
        """Yield the lines of a key and a value that is there."""
        start = indented(indent, f"{self._key(key)}:")
        mark = self.recording.mark(value)
        if isinstance(mark, File):
            yield from self._file(start, key, mark, indent)
        elif isinstance(mark, Value) and is_mapping(mark.kind):
            yield start
            yield from self._entries(mark.expression, indent + 2)
        elif isinstance(mark, Value) and is_list(mark.kind):
            yield start
            yield action(f"range {mark.expression}", indent + 2)
            yield indented(indent + 2, f"- {self._typed(Value('.', item_type(mark.kind)), indent + 4)}")
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
        """Yield the lines of a list's items."""
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str) and (text := self.comments.texts.get(value)):
                yield indented(indent, f"# {text}")
            if not isinstance(value, Mapping) or not value:
                yield indented(indent, f"- {self._scalar(value, indent + 2)}")
            elif branches := self.recording.only_branches(value):
                for branch in branches:
                    yield from self.guarded(branch, lambda body: self.items(body, indent), indent)
            else:
                yield from self._item(list(self.mapping(value, indent + 2)), indent)

    def _item(self, lines: list[str], indent: int) -> Lines:
        """Yield the lines of a mapping behind a dash; comments on its first key stand before it."""
        first = next(number for number, line in enumerate(lines) if not line.lstrip().startswith("#"))
        assert not lines[first].lstrip().startswith("{{-"), f"an item needs a key that is always there: {lines}"
        yield from (line[2:] for line in lines[:first])
        yield indented(indent, f"- {lines[first].lstrip()}")
        yield from lines[first + 1 :]

    def _entries(self, expression: str, indent: int) -> Lines:
        """Yield the entries of a mapping of texts."""
        yield action(f"range $key, $value := {expression}", indent)
        yield indented(indent, "{{ $key | quote }}: {{ $value | quote }}")
        yield action("end", indent)

    def _file(self, start: str, key: str, mark: File, indent: int) -> Lines:
        name = f"tidegate.{key.rpartition('/')[2]}"
        included = self.recording.named(name, JsonWriter(self.recording).whole(mark.tree))
        if mark.checksum:
            yield f"{start} {{{{ {included} | fromYaml | toJson | sha256sum | quote }}}}"
        else:
            yield f"{start} |"
            yield action(f"{included} | fromYaml | toPrettyJson | nindent {indent + 2}", indent + 2)

    def _key(self, key: str) -> str:
        return f"{{{{ {self.text(key)} | quote }}}}" if TOKEN.search(key) else scalar(key)

    def _scalar(self, value: Any, indent: int) -> str:
        """Return what stands behind a key or a dash."""
        if isinstance(value, Mapping | list):
            return "{}" if isinstance(value, Mapping) else "[]"
        if not isinstance(value, str):
            return scalar(value)
        mark = self.recording.mark(value)
        if isinstance(mark, Value) and not value.startswith(AS_TEXT):
            return self._typed(mark, indent)
        if TOKEN.search(value):
            return f"{{{{ {self.text(value)} | quote }}}}"
        if _is_block(value):
            lines = [indented(indent, line) if line else "" for line in value.rstrip("\n").split("\n")]
            return "\n".join(["|" if value.endswith("\n") else "|-", *lines])
        return f"{{{{ {go_text(value)} | quote }}}}" if "{{" in value else scalar(value)

    def _typed(self, mark: Value, indent: int) -> str:
        types = types_of(mark.kind)
        if types == (str,):
            return f"{{{{ {known(mark)} | quote }}}}"
        if types in ((int,), (bool,)):
            return f"{{{{ {number(mark) if types == (int,) else known(mark)} }}}}"
        return f"{{{{- toYaml {enclosed(mark.expression)} | nindent {indent} }}}}"


def _is_block(text: str) -> bool:
    """Say whether a text can be written as a block of lines, as it is."""
    lines = text.removesuffix("\n").split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and plain and bool(lines[-1]) and not lines[0].startswith((" ", "#")) and "{{" not in text


def _without(mark: Spread) -> str:
    names = " ".join(map(go_text, mark.without))
    return f"omit ({mark.expression} | default dict) {names}" if names else mark.expression
