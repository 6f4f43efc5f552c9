"""The reference page: every part of a definition in the order of the file, its keys, its rules."""

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from .. import overlays, rules
from ..definition import Header
from ..definition.base import Conditional
from ..model_keys import Key, Model, bare, branches, hint_of, tag_values
from ..validate import OVERLAID
from .examples import Examples
from .outline import NAMED_TYPES, Part, anchor_of, common_keys, keys, outline, pattern_of, words, words_of_class
from .tables import filled, table

WORKED = ("small", "shared")
"""Definitions next to this file, with which the page begins."""
_HERE = FilePath(__file__).parent
_WHOLE_DEFAULTS = """\
A default in braces holds as a whole, for a key that is left out: where some of its keys are said, the others have the
defaults in their own table.
"""

_WORDS = {"kubernetes": "Kubernetes", "domino": "Domino", "mig": "MIG", "gpu": "GPU", "cpu": "CPU"}
_OVERLAID = {(section,) for section in OVERLAID}


def page(example: FilePath) -> str:
    """Return the page as Markdown; `example` is the definition that its examples are cut from."""
    return _Page(Examples(example)).text()


def sentence(name: str) -> str:
    """Return the name of a rule as a sentence."""
    found = [_WORDS.get(word, word) for word in name.strip("_").split("_")]
    text = " ".join(found)
    return text[0].upper() + text[1:] + "."


def model_rules(model: Model) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of each rule about several keys of one part that this class brings in itself."""
    if model is Conditional:  # whose conditions are those of the classes below it
        return
    for name, decorator in model.__pydantic_decorators__.model_validators.items():
        if name in vars(model):
            yield name, inspect.cleandoc(decorator.func.__doc__ or "")
    for condition in model.own_conditions() if issubclass(model, Conditional) else ():
        yield condition.name, f"{condition.why}."


class _Page:
    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.parts = outline()
        self.shared = {part.models[0]: part for part in self.parts if part.key is None}

    def text(self) -> str:
        sections = [self.section(part) for part in self.parts if part.key is not None]
        sections.append("## Parts that stand in several places\n")
        sections += [self.section(part) for part in self.shared.values()]
        whole_defaults = [_WHOLE_DEFAULTS] if any("| `{" in section for section in sections) else []
        return filled(
            _HERE / "text" / "definition.md",
            **{name: _HERE.joinpath(f"{name}.yaml").read_text("utf-8") for name in WORKED},
            contents="\n".join([*whole_defaults, self.contents()]),
            merging=_merging(),
            parts="\n".join([*sections, _kinds_of_text(), self.rules()]),
        )

    def contents(self) -> str:
        header = {str(field.alias) for field in Header.model_fields.values()}
        rows = []
        for part in self.parts:
            if len(part.path) == 1 and part.key is not None:
                inner = [other for other in self.parts if len(other.path) == 2 and other.path[0] == part.path[0]]
                mark = f"**{_link(part)}**" if part.title in header else _link(part)
                links = ", ".join(f"[{other.path[1]}](#{other.anchor})" for other in inner)
                rows.append((mark, part.key.description, links))
        more = "[How layers are laid over each other](#merging) · [Kinds of text](#kinds-of-text) · [Rules](#rules)"
        return "\n".join([*_table(("part", "what it says", "in it"), rows), more, ""])

    def section(self, part: Part) -> str:
        """Return one part: what it is, an example, its keys, its kinds."""
        top = len(part.path) == 1 and part.key is not None
        kinds = len(part.models) > 1
        said = part.key.description if part.key is not None else ""
        about = [said] if kinds or top else []
        if not kinds:
            doc = inspect.cleandoc(part.models[0].__doc__ or "")
            about = [doc] if doc.startswith(said.rstrip(".")) else [*about, doc]
        lines = [f'<a id="{part.anchor}"></a>', "", f"{'##' if top else '###'} {part.title}", "", *_paragraphs(about)]
        if not kinds and part.key is not None:
            lines += _yaml(self.examples.of(part.path))
        if shared := common_keys(part):
            lines += (["Keys of every kind:", ""] if kinds else []) + self.table(shared)
        if kinds:
            lines += self.kinds(part, {key.name for key in shared}, "###" if top else "####")
        if part.path in _OVERLAID:
            lines += ["And every key of the common part, saying only what differs.", ""]
        return "\n".join(lines)

    def kinds(self, part: Part, known: set[str], level: str) -> Iterator[str]:
        """Yield the kinds of a choice, with the keys that each has beside those of every kind."""
        for model in part.models:
            own = [key for key in keys(model) if key.name not in known and key.name != part.tag]
            own.sort(key=lambda key: (not key.field.is_required(), key.owner is not model))
            if part.tag is not None:
                values = tag_values(model, part.tag)
                title = f"`{part.tag}: {'` or `'.join(values)}`"
                example = self.examples.of(part.path, part.tag, values)
            else:
                first = next(key.name for key in own if key.field.is_required())
                title = f"with `{first}`"
                example = self.examples.of(part.path, first)
            yield from (f"{level} {part.title}, {title}", "", *_paragraphs([inspect.cleandoc(model.__doc__ or "")]))
            yield from _yaml(example)
            yield from self.table(own) if own else ("No further keys.", "")

    def table(self, found: Iterable[Key]) -> list[str]:
        def meaning(key: Key) -> str:
            return key.description or inspect.cleandoc(key.owner.__doc__ or "")

        rows = [(f"`{key.name}`", self.type_of(key), _default(key), meaning(key)) for key in found]
        return _table(("key", "type", "default", "meaning"), rows)

    def type_of(self, key: Key) -> str:
        """Return the type of a key in plain words, with a link to the part that stands there."""
        if not key.models:
            return words(key.annotation)
        part = self.shared.get(key.models[0]) if len(key.models) == 1 else None
        part = part or next(
            part for part in self.parts if part.path[-1] == key.name and part.models == key.models and part.key
        )
        listed = "tuple" in str(key.annotation).split("[")[0] or "tuple[" in str(key.annotation)
        either = listed and any(bare(each) in key.models for each in branches(key.annotation).values())
        what = "mapping or list" if either else "list" if listed else "mapping"
        named = listed and all("name" in model.model_fields for model in key.models)
        return f"[{what}](#{part.anchor})" + ("; items have names" if named else "")

    def rules(self) -> str:
        lines = ['<a id="rules"></a>', "", "## Rules that look at more than one key", ""]
        groups = (
            ("Environments and data planes", rules.HEADER_RULES),
            ("Each stack", rules.STACK_RULES),
            ("All stacks together", rules.DEFINITION_RULES),
        )
        lines += ["### One part", ""]
        done: set[Model] = set()
        for part in self.parts:
            for model in part.models:
                for each in model.__mro__:
                    if issubclass(each, BaseModel) and each not in done:
                        done.add(each)
                        place = _link(part) + (f" ({words_of_class(model)})" if each is model and part.tag else "")
                        lines += [_rule(sentence(name), about, place) for name, about in model_rules(each)]
        for title, group in groups:
            lines += [
                "",
                f"### {title}",
                "",
                *(_rule(f"{rule.title}.", rule.why, advises=rule.severity == "advisory") for rule in group),
            ]
        return "\n".join([*lines, ""])


def _merging() -> str:
    about = inspect.cleandoc(overlays.__doc__ or "")
    return f'<a id="merging"></a>\n\n## How layers are laid over each other\n\nTidegate {about[0].lower()}{about[1:]}\n'


def _kinds_of_text() -> str:
    rows = [
        (f'<a id="{anchor_of(name)}"></a>{name}', hint_of(annotation), f"`{pattern_of(annotation)}`")
        for name, annotation in NAMED_TYPES
    ]
    table = _table(("text", "form", "regular expression"), rows)
    return "\n".join(['<a id="kinds-of-text"></a>', "", "## Kinds of text", "", *table])


def _rule(title: str, about: str, place: str = "", *, advises: bool = False) -> str:
    parts = [f"{place}:" if place else "", f"**{title}**", "(advisory)" if advises else "", *about.split()]
    return f"- {' '.join(filter(None, parts))}"


def _link(part: Part) -> str:
    return f"[{part.title}](#{part.anchor})"


def _default(key: Key) -> str:
    field = key.field
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    if default in (None, PydanticUndefined, (), {}):
        return "none"
    if isinstance(default, BaseModel):
        if default == type(default).model_construct() or not default.model_fields_set:
            return "its keys' defaults"
        said = default.model_dump(by_alias=True, exclude_unset=True)
        return "`{" + ", ".join(f"{name}: {_scalar(value)}" for name, value in said.items()) + "}`"
    if isinstance(default, tuple):
        return "`[" + ", ".join(map(_scalar, default)) + "]`"
    return f"`{_scalar(default)}`"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return f'"{text}"' if isinstance(value, str) and not re.match(r"[A-Za-z/]|[0-9]+[A-Za-z]", text) else text


def _paragraphs(texts: Iterable[str]) -> list[str]:
    return [line for text in texts if text for line in (text, "")]


def _yaml(example: str | None) -> list[str]:
    return ["```yaml", *example.splitlines(), "```", ""] if example else []


def _table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table in Markdown, a blank line at its end."""
    return [*table(heading, rows).splitlines(), ""]
