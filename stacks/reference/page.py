"""The reference page: every part of a definition in the order of the file, with its keys, and the rules."""

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined

from .. import overlays, rules
from ..definition import Header, Platform
from ..definition.base import Named
from ..model_keys import Key, Model, bare, branches, keys_of, tag_values
from ..validate import OVERLAID
from .tables import filled, table

_MOST_INLINED = 4
"""A part with more keys has a section. The keys of others are dotted keys in the section around it."""
_HERE = FilePath(__file__).parent


@dataclass(frozen=True)
class Part:
    """A place in the file with a table of keys."""

    path: tuple[str, ...]
    key: Key

    @property
    def models(self) -> tuple[Model, ...]:
        return self.key.models

    @property
    def title(self) -> str:
        return ".".join(self.path)

    @property
    def anchor(self) -> str:
        return "-".join(self.path)

    @property
    def link(self) -> str:
        return f"[{self.title}](#{self.anchor})"


def page() -> str:
    """Return the page as Markdown."""
    return _Page().text()


def keys(model: Model) -> list[Key]:
    """Return the keys of a part: its name and kind, then required keys, then the others."""
    first = {"name": 0, "kind": 1, "mode": 1, "cloud": 1}
    return sorted(keys_of(model).values(), key=lambda key: (first.get(key.name, 2), not key.field.is_required()))


def outline() -> dict[tuple[Model, ...], Part]:
    """Return every part of a definition by its shape, in the order of the file, each at its first place."""
    found: dict[tuple[Model, ...], Part] = {}

    def look(path: tuple[str, ...], key: Key) -> None:
        if key.models and shape(key) not in found:
            found[shape(key)] = Part(path, key)
            for model in key.models:
                for inner in keys_of(model).values():
                    look((*path, inner.name), inner)

    for model in (Platform, Header):
        for top in keys_of(model).values():
            look((top.name,), top)
    return found


def shape(key: Key) -> tuple[Model, ...]:
    """Return the models of a key, each replaced by the most general class with its keys (and an own description)."""
    bases = [[base for base in model.__mro__ if issubclass(base, BaseModel)] for model in key.models]
    alike = [[each for each in found if each.model_fields.keys() == found[0].model_fields.keys()] for found in bases]
    return tuple(found[0] if issubclass(found[-1], Named) else found[-1] for found in alike)


def type_name(schema: dict[str, Any]) -> str:
    """Return the type of a plain value in Markdown."""
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(type_name(each) for each in choices if each.get("type") != "null"))
    if len(known := schema.get("enum") or ([schema["const"]] if "const" in schema else [])) in range(1, 10):
        return ", ".join(f"`{each}`" for each in known)
    if schema["type"] == "array":
        return f"list of {_plural(type_name(schema['items']))}"
    if schema["type"] == "object":
        patterns = [each for each in schema.get("patternProperties", {}).values() if "not" not in each]
        return f"map of {_plural(type_name(patterns[0] if patterns else schema['additionalProperties']))}"
    if schema["type"] == "string":
        if "formatName" in schema:
            name = schema["formatName"]
            return "string" if name == "text" else f"[{name}](#formats)"
        hint, examples = schema.get("hint", ""), schema.get("examples", [])
        such_as = [hint] if hint and " " not in hint else examples
        return (
            f"string, such as {', '.join(f'`{each}`' for each in such_as)}"
            if such_as
            else f"string: {hint}"
            if hint
            else "string"
        )
    return f"{schema['type']} {schema['minimum']}–{schema['maximum']}" if "minimum" in schema else str(schema["type"])


def _plural(item: str) -> str:
    return "strings" if item.startswith("string") else item.replace("](#formats)", "s](#formats)")


class _Page:
    def __init__(self) -> None:
        self.outline = outline()
        self.parts = [*self.outline.values()]

    def text(self) -> str:
        about = inspect.cleandoc(overlays.__doc__ or "")
        sections = [part for part in self.parts if not self.is_inlined(part)]
        return filled(
            _HERE / "text" / "definition.md",
            contents=self.contents(sections),
            merging=f"Tidegate {about[0].lower()}{about[1:]}",
            formats=self.formats(),
            parts="\n".join([*map(self.section, sections), self.rules()]),
        )

    def formats(self) -> str:
        found: dict[str, str] = {}
        for schema in (each for part in self.parts for model in part.models for each in _strings(model)):
            examples = " or ".join(f"`{each}`" for each in schema.get("examples", ()))
            hint = schema.get("hint", "")
            such_as = f"`{hint}`" if hint and " " not in hint else examples
            found[schema["formatName"]] = hint if " " in hint else f"such as {such_as}"
        found.pop("text", None)
        return table(("format", "form"), sorted(found.items(), key=lambda each: each[0].lower()))

    @staticmethod
    def contents(sections: list[Part]) -> str:
        header = {str(field.alias) for field in Header.model_fields.values()}
        lines: list[str] = []
        for part in sections:
            if len(part.path) == 1:
                lines.append(f"- {f'**{part.link}**' if part.title in header else part.link}")
            else:
                inner = f"[{'.'.join(part.path[1:])}](#{part.anchor})"
                lines[-1] += f"{', ' if ':' in lines[-1] else ': '}{inner}"
        return "\n".join(lines)

    def is_inlined(self, part: Part) -> bool:
        """Return whether the keys of a part are dotted keys in the table of the part around it."""
        return len(part.path) > 1 and self.size(part) <= _MOST_INLINED

    def size(self, part: Part) -> int:
        """Return the number of the keys of a part, with those of its parts."""
        found = {key.name: key for model in part.models for key in keys(model) if key.name != part.key.tag}
        inner = [self.outline[shape(each)] for each in found.values() if each.models]
        return len(found) + sum(self.size(each) for each in inner if each.path[:-1] == part.path)

    def section(self, part: Part) -> str:
        top, kinds = len(part.path) == 1, len(part.models) > 1
        about = [part.key.description] if kinds else [inspect.cleandoc(part.models[0].__doc__ or "")]
        about += [inspect.cleandoc(model.__doc__ or "").partition("\n\n")[2] for model in part.models if kinds]
        lines = [f'<a id="{part.anchor}"></a>', f"{'##' if top else '###'} {part.title}", *filter(None, about)]
        lines.append(table(("key", "type (default)", "meaning"), self.rows(part)).rstrip())
        if part.path in {(section,) for section in OVERLAID}:
            lines.append("Every key of the common part can override it here.")
        return re.sub(r"\(docs/(\w+\.md)\)", r"([\1](\1))", "\n\n".join([*lines, ""]))

    def rows(self, part: Part, prefix: str = "") -> Iterator[tuple[str, ...]]:
        """Yield the keys of a part: those of several kinds, and then each kind with its own."""
        tag, several, listed = part.key.tag, len(part.models) > 1, list[object]()
        own = {model: [key for key in keys(model) if key.name != tag or not several] for model in part.models}
        for key in (key for found in own.values() for key in found):
            having = [model for model, found in own.items() if _identity(key) in map(_identity, found)]
            if _identity(key) not in listed and (not several or len(having) > 1):
                listed.append(_identity(key))
                yield from self.row(key, part, prefix, _which(having, part))
        for model, found in own.items() if several else ():
            kind = "` or `".join(tag_values(model, tag)) if tag else ""
            named = f"`{prefix}{tag}: {kind}`" if tag else f"with `{prefix}{found[0].name}`"
            yield f"**{named}**", "", inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0]
            for key in (key for key in found if _identity(key) not in listed):
                yield from self.row(key, part, prefix)

    def row(self, key: Key, part: Part, prefix: str, which: str = "") -> Iterator[tuple[str, ...]]:
        """Yield a key and, if it has a small part that has no section, the keys of the part."""
        name, text = prefix + key.name, (key.description or inspect.cleandoc(key.owner.__doc__ or "")) + which
        what, there = self.type_of(key), self.outline.get(shape(key))
        is_first = there is not None and there.path == (*part.path, key.name)
        default = _default(key, is_first)
        if there and is_first and self.is_inlined(there):
            yield f'<a id="{there.anchor}"></a>`{name}`', what + default, text
            yield from self.rows(there, f"{name}[]." if what.startswith("list") else f"{name}.")
        else:
            yield f"`{name}`", (f"[{what}](#{there.anchor})" if there else what) + default, text

    @staticmethod
    def type_of(key: Key) -> str:
        if not key.models:
            return type_name(TypeAdapter(key.annotation).json_schema())
        listed = "tuple[" in str(key.annotation)
        either = listed and any(bare(each) in key.models for each in branches(key.annotation).values())
        return "object or list of objects" if either else "list of objects" if listed else "object"

    def rules(self) -> str:
        lines = ['<a id="rules"></a>', "", "## Rules about several parts", ""]
        lines += ["If a definition breaks a rule, `tidegate check` prints where, why, and a remedy."]
        for title, group in (
            ("Environments and data planes", rules.HEADER_RULES),
            ("Each stack", rules.STACK_RULES),
            ("All stacks together", rules.DEFINITION_RULES),
        ):
            lines += ["", f"### {title}", ""]
            lines += [f"- {rule.title}." for rule in group if rule.severity != "advisory"]
            lines += ["", "Warnings:", ""]
            lines += [f"- {rule.title}." for rule in group if rule.severity == "advisory"]
        return "\n".join([*lines, ""])


def _identity(key: Key) -> object:
    """Return a value that is equal for keys of several kinds that are one row."""
    return key.name, key.annotation, key.description, key.field.default


def _which(having: Sequence[Model], part: Part) -> str:
    """Return a sentence that names the kinds that have a key, or an empty string if all have it."""
    values = {model: tag_values(model, part.key.tag or "") for model in part.models if part.key.tag}
    without = [model for model in values if model not in having]
    if not without:
        return ""
    word, those = ("Only", having) if len(having) <= len(without) else ("Not", without)
    return f" {word} {', '.join(f'`{each}`' for model in those for each in values[model])}."


def _default(key: Key, is_first: bool = True) -> str:
    """Return the default of a key in parentheses, "required", or an empty string. A part with a table has none here."""
    field = key.field
    if field.is_required():
        return " (required)"
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel):
        given = default.model_dump(by_alias=True, exclude_unset=True)
        default = given or ({} if is_first else default.model_dump(by_alias=True, exclude_none=True))
    if default in (None, PydanticUndefined, (), {}):
        return ""
    plain = list(default) if isinstance(default, tuple) else default
    written: str = yaml.safe_dump(plain, default_flow_style=True, width=10**9)
    return f" (`{written.strip().removesuffix('...').strip()}`)"


def _strings(model: Model) -> Iterator[dict[str, Any]]:
    """Yield the schemas of strings with a named format in the plain keys of a part."""
    for key in keys_of(model).values():
        found = [] if key.models else [TypeAdapter(key.annotation).json_schema()]
        while found:
            schema = found.pop()
            if "formatName" in schema:
                yield schema
            found += schema.get("anyOf", [])
            found += [each for name in ("items", "additionalProperties") if isinstance(each := schema.get(name), dict)]
            found += schema.get("patternProperties", {}).values()
