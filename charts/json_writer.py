"""Writes the tree of a JSON file as it reads, with a comma after every item: Helm takes it as YAML, and makes JSON."""

import json
from collections.abc import Mapping
from typing import Any

from .arguments import is_list
from .go import types_of
from .recording import AS_TEXT, TOKEN, Value
from .writer import Lines, Writer, indented, known, number


class JsonWriter(Writer):
    """Writes the tree of a file."""

    def whole(self, tree: Any) -> str:
        """Return the text of a whole tree."""
        return "\n".join(self._tree("", tree, 0)).removesuffix(",")

    def _tree(self, start: str, value: Any, indent: int) -> Lines:
        """Yield the lines of a value behind its key; nothing where it is missing."""
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
            return f"[{{{{ range {mark.expression} }}}}{{{{ . | quote }}}}, {{{{ end }}}}]"
        if isinstance(mark, Value) and not value.startswith(AS_TEXT) and types_of(mark.kind) != (str,):
            return f"{{{{ {number(mark) if types_of(mark.kind) == (int,) else known(mark)} }}}}"
        if isinstance(value, str) and TOKEN.search(value):
            return f"{{{{ {self.text(value)} | quote }}}}"
        return json.dumps(value, ensure_ascii=False)
