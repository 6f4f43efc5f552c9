"""The recording of components that run with placeholders: values, loops, branches and files, as numbered marks.

Components put tokens of these marks into their objects. A value is a text with its token. A loop or a branch is a
mapping from its token to its body.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin

import pulumi

from components.values import Placeholder
from stacks.model_keys import bare, models_in

from .arguments import arguments, is_list, is_mapping

RAW, AS_TEXT, END = "\ue000", "\ue001", "\ue002"
"""Characters around the number of a mark: for the value itself, and for the value as text, as in f-strings."""
TOKEN = re.compile(f"([{RAW}{AS_TEXT}])([0-9]+){END}")


@dataclass(frozen=True)
class Value:
    """A value: a Go expression, with its type and default."""

    expression: str
    kind: Any  # Its Python type.
    optional: bool = False
    default: Any = None
    zero: bool = True  # Whether it may be zero.

    @property
    def is_open(self) -> bool:
        """Whether it can be missing. For lists and mappings, an empty one counts as missing."""
        return self.optional or ((is_list(self.kind) or is_mapping(self.kind)) and not self.default)

    @property
    def known(self) -> str:
        """The expression of the value, or of its default if it is missing."""
        it, default = self.expression, self.default
        if default in (None, [], {}, ()) or models_in(self.kind):
            return it
        if default is True:
            return f"ne {it} false"
        if isinstance(default, int) and default and self.zero:
            return f"ternary {it} {default} (ne {it} nil)"
        return f"{it} | default {go(default)}"

    @property
    def there(self) -> str:
        """The condition for its presence. False, zero and an empty text are present, an empty list is not."""
        owners = models_in(self.kind)
        full = owners and all(any(argument.field.is_required() for argument in arguments(owner)) for owner in owners)
        plain = is_list(self.kind) or is_mapping(self.kind) or full
        return self.expression if plain else f"ne {self.expression} nil"


@dataclass(frozen=True)
class Guard:
    """Opens a loop (`range …`), a branch (`if …`), or the `else` of the branch before."""

    opening: str
    condition: str  # True if the body is rendered.


@dataclass(frozen=True)
class Spread:
    """Adds the entries of a mapping to others, which win."""

    expression: str
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class File:
    """The text of a JSON file, or its checksum."""

    tree: Any
    is_checksum: bool = False


@dataclass(frozen=True)
class Branch:
    """A part of a mapping or list that depends on values."""

    mark: Guard | Spread
    body: Any
    otherwise: Any = None

    @property
    def is_loop(self) -> bool:
        return isinstance(self.mark, Guard) and self.mark.opening.startswith("range ")

    @property
    def is_condition(self) -> bool:
        return isinstance(self.mark, Guard) and not self.is_loop


@dataclass(frozen=True)
class Opened:
    """A guard around declared objects. The number distinguishes guards with the same text."""

    number: int
    opening: str


@dataclass
class Recording:
    """Marks by number, the open guards, and the required named templates. `components.values.RECORDER` holds it, and
    the helpers that compose values call it."""

    marks: list[Value | Guard | Spread | File] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)
    helpers: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def token(self, mark: Value | Guard | Spread | File, style: str = RAW) -> str:
        self.marks.append(mark)
        return f"{style}{len(self.marks) - 1}{END}"

    def mark(self, text: Any) -> Value | Guard | Spread | File | None:
        """Return the mark of a text that consists of one token."""
        found = TOKEN.fullmatch(text) if isinstance(text, str) else None
        return self.marks[int(found[2])] if found else None

    @contextmanager
    def below(self, opening: str) -> Iterator[None]:
        """Record a guard around everything that is declared meanwhile."""
        variable = opening.partition(" := ")[0]
        if opening.startswith("range ") and any(one.opening.startswith(f"{variable} := ") for one in self.opened):
            raise TypeError(f"{opening}: it is within a loop with the same variable. Rename one of the two fields.")
        self.opened.append(Opened(next(self._numbers), opening))
        try:
            yield
        finally:
            self.opened.pop()

    def loop(self, opening: str, condition: str, make: Callable[[], Any]) -> Any:
        with self.below(opening):
            made = make()
        if made is None or isinstance(made, pulumi.Resource):
            return None if made is None else [made]
        return Recorded(self, {self.token(Guard(opening, condition)): made})

    def branch(self, condition: str, make: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        inverse = f"not {enclosed(condition)}"
        with self.below(f"if {condition}"):
            made = make()
        with self.below(f"if {inverse}"):
            other = otherwise()
        if isinstance(made, pulumi.Resource):
            return made
        if made is None:
            return None if other is None else Recorded(self, {self.token(Guard(f"if {inverse}", inverse)): other})
        found = {self.token(Guard(f"if {condition}", condition)): made}
        return Recorded(self, found if other is None else found | {self.token(Guard("else", inverse)): other})

    def joined(self, parts: tuple[Any, ...]) -> Any:
        items: list[Any] = []
        for part in parts:
            if isinstance(part, Recorded):
                items.append(part)
            elif isinstance(part, Placeholder) and not isinstance(part, Parts):
                items.append(part.each(lambda item: item))
            elif part is not None:
                items.extend(part)
        return Parts(self, items) if any(isinstance(item, Recorded) for item in items) else items

    def merged(self, parts: tuple[Any, ...]) -> Any:
        found: dict[str, Any] = {}
        for number, part in enumerate(parts):
            mark = self.mark(part)
            if isinstance(mark, Value):
                later = sorted({key for other in parts[number + 1 :] for key in self._keys(other)})
                found[self.token(Spread(mark.expression, tuple(later)))] = True
            elif part is not None:
                found |= part
        return Recorded(self, found) if any(TOKEN.fullmatch(key) for key in found) else found or None

    def json_text(self, tree: Any) -> str:
        return self.token(File(_plain(tree)))

    def checksum(self, tree: Any) -> str:
        return self.token(File(_plain(tree), is_checksum=True))

    def _keys(self, part: Any) -> Iterator[str]:
        """Yield the keys that a mapping can have."""
        for key, value in part.items() if isinstance(part, Mapping) else ():
            if isinstance(self.mark(key), Guard):
                yield from self._keys(value)
            elif not TOKEN.search(key):
                yield key

    def branches(self, tree: Any) -> list[Branch]:
        """Return the parts of a mapping that depend on values, in the order of recording."""
        keys = {int(token[2]): key for key in tree if (token := TOKEN.fullmatch(key))} if is_tree(tree) else {}
        found: list[Branch] = []
        for number in sorted(keys):
            mark, body = self.marks[number], tree[keys[number]]
            if isinstance(mark, Guard) and mark.opening == "else":
                found[-1] = replace(found[-1], otherwise=body)
            elif isinstance(mark, Guard | Spread):
                found.append(Branch(mark, body))
        return found

    def only_branches(self, tree: Any) -> list[Branch]:
        """Return the branches of a mapping that consists only of branches."""
        found = self.branches(tree)
        return found if len(found) + sum(one.otherwise is not None for one in found) == len(tree) else []

    def presence(self, value: Any) -> str:
        """Return the condition for the presence of a value, or an empty text if it is always present."""
        mark = self.mark(value)
        if isinstance(mark, Value):
            return mark.there if mark.is_open else ""
        if isinstance(value, list | tuple):
            return either_of([self.presence(item) for item in value])
        branches = self.only_branches(value) if is_tree(value) else []
        return either_of([self._presence(branch) for branch in branches])

    def _presence(self, branch: Branch) -> str:
        if isinstance(branch.mark, Spread):
            return branch.mark.expression
        condition, inner = branch.mark.condition, self.presence(branch.body)
        if branch.otherwise is not None:
            other = self.presence(branch.otherwise)
            return either_of([both(condition, inner), both(f"not {enclosed(condition)}", other)])
        if not branch.is_loop or not inner:
            return both(condition, inner)
        # Helm has no expression for whether any item of a list has something, so a named template computes it.
        words = dict.fromkeys(re.findall(r"[A-Za-z]+", re.sub(r"\b(nil|ne|not|and|or|eq)\b", "", inner)))
        text = f"{{{{- {branch.mark.opening} }}}}{{{{ if {inner} }}}}true{{{{ end }}}}{{{{ end }}}}"
        return self.named(".".join(["tidegate.any", *words]), text)

    def named(self, name: str, text: str) -> str:
        """Return the expression that includes a named template with the variables that it uses. If one name has several
        texts, later ones get a number: each kind of server writes another `eviction.json`."""
        bound = re.findall(r"range \$(\w+) :=", text)
        free = sorted(set(re.findall(r"\$([a-z]\w*)", text)) - set(bound))
        whole = "\n".join([*(f"{{{{- ${variable} := .{variable} }}}}" for variable in free), text])
        name = next((each for each, written in self.helpers.items() if written == whole), name)
        names = (name if number == 1 else f"{name}.{number}" for number in itertools.count(1))
        name = next(each for each in names if self.helpers.setdefault(each, whole) == whole)
        handed = " ".join(f'"{variable}" ${variable}' for variable in free)
        return f'include "{name}" ' + (f'(dict "Values" $.Values {handed})' if free else "$")


class Recorded(dict[str, Any], Placeholder):
    """The result of a loop or a branch: bodies by the tokens of their guards."""

    def __init__(self, recording: Recording, bodies: dict[str, Any]) -> None:
        super().__init__(bodies)
        self.recording = recording

    def choice(self, make: Callable[[Any], Any], otherwise: Callable[[], Any], test: Any) -> Any:
        """Record a branch on presence."""
        if test is not None:
            raise TypeError("a result that depends on values can only be tested for presence")
        condition = self.recording.presence(self)
        return self.recording.branch(condition, lambda: make(self), otherwise) if condition else make(self)


class Parts(list[Any], Placeholder):
    """A list with parts that depend on values."""

    def __init__(self, recording: Recording, items: list[Any]) -> None:
        super().__init__(items)
        self.recording = recording

    choice = Recorded.choice


def _plain(tree: Any) -> Any:
    """Return a tree with tokens instead of placeholders."""
    if isinstance(tree, str):
        return str.__str__(tree)
    if isinstance(tree, Mapping):
        return {key: _plain(item) for key, item in tree.items()}
    return [_plain(item) for item in tree] if isinstance(tree, list | tuple) else tree


def is_tree(value: Any) -> bool:
    """Return whether a value is a mapping that is not empty."""
    return isinstance(value, Mapping) and bool(value)


def go(value: Any) -> str:
    """Return a constant in the syntax of Go's templates."""
    if isinstance(value, tuple | list):
        return f"(list {' '.join(map(go, value))})"
    return go_text(value) if isinstance(value, str) else str(value).lower()


def enclosed(expression: str) -> str:
    """Return an expression in the form of an argument."""
    return f"({expression})" if " " in expression else expression


def both(condition: str, other: str) -> str:
    """Return the conjunction of two conditions. An empty one is always true."""
    return f"and {enclosed(condition)} {enclosed(other)}" if other not in ("", condition) else condition


def either_of(conditions: list[str]) -> str:
    """Return the disjunction of conditions, or an empty text if it is always true."""
    different = list(dict.fromkeys(conditions))
    if "" in different or any(f"not {enclosed(condition)}" in different for condition in different):
        return ""
    return different[0] if len(different) == 1 else f"or {' '.join(map(enclosed, different))}" if different else ""


def go_text(text: str) -> str:
    """Return a text in Go's syntax, in back quotes if that saves escapes."""
    if ('"' in text or "\\" in text) and "`" not in text and text.isprintable():
        return f"`{text}`"
    return json.dumps(text, ensure_ascii=False)


def types_of(kind: Any) -> tuple[type, ...]:
    """Return the plain types of a value, or of its words if it is a choice of words."""
    kind = bare(kind)
    return tuple({type(word) for word in get_args(kind)}) if get_origin(kind) is Literal else (kind,)
