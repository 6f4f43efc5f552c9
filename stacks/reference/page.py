"""The reference page: every part of a definition in the order of the file, with its keys, and the rules."""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined

from .. import overlays, rules
from ..definition import Header, Platform
from ..model_keys import Key, Model, bare, branches, keys_of, tag_values
from ..validate import OVERLAID
from .tables import filled, table

WORKED = ("small", "shared")
"""Names of the examples next to this file."""
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
        return " › ".join(self.path)

    @property
    def anchor(self) -> str:
        return "-".join(self.path).replace(" ", "-")

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
    """Return every part of a definition by its models, in the order of the file, each at its first place."""
    found: dict[tuple[Model, ...], Part] = {}

    def look(path: tuple[str, ...], key: Key) -> None:
        if key.models and key.models not in found:
            found[key.models] = Part(path, key)
            for model in key.models:
                for inner in keys_of(model).values():
                    look((*path, inner.name), inner)

    for model in (Platform, Header):
        for top in keys_of(model).values():
            look((top.name,), top)
    return found


def type_name(schema: dict[str, Any]) -> str:
    """Return the type of a plain value in Markdown."""
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(type_name(each) for each in choices if each.get("type") != "null"))
    if len(known := schema.get("enum") or ([schema["const"]] if "const" in schema else [])) in range(1, 10):
        return ("enum: " if len(known) > 1 else "") + ", ".join(f"`{each}`" for each in known)
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
        merging = '<a id="merging"></a>\n\n## How layers merge\n\n'
        return filled(
            _HERE / "text" / "definition.md",
            **{name: _HERE.joinpath(f"{name}.yaml").read_text("utf-8") for name in WORKED},
            contents=self.contents(),
            merging=f"{merging}Tidegate {about[0].lower()}{about[1:]}\n",
            formats=self.formats(),
            parts="\n".join([*map(self.section, self.parts), self.rules()]),
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

    def contents(self) -> str:
        header = {str(field.alias) for field in Header.model_fields.values()}
        rows = []
        for part in self.parts:
            if len(part.path) == 1:
                inner = [other for other in self.parts if len(other.path) == 2 and other.path[0] == part.path[0]]
                links = ", ".join(f"[{other.path[1]}](#{other.anchor})" for other in inner)
                rows.append((f"**{part.link}**" if part.title in header else part.link, part.key.description, links))
        return table(("part", "meaning", "sections"), rows)

    def section(self, part: Part) -> str:
        top, kinds = len(part.path) == 1, len(part.models) > 1
        about = part.key.description if kinds else inspect.cleandoc(part.models[0].__doc__ or "")
        lines = [f'<a id="{part.anchor}"></a>', f"{'##' if top else '###'} {part.title}", about]
        tag, common = part.key.tag, self.common(part) if kinds else {key.name: key for key in keys(part.models[0])}
        if common:
            lines += [*(["Common keys:"] if kinds else []), self.table(common.values(), part)]
        for model in part.models if kinds else ():
            own = [key for key in keys(model) if key.name not in common and key.name != tag]
            own.sort(key=lambda key: (not key.field.is_required(), key.owner is not model))
            named = f"with `{own[0].name}`" if tag is None else f"`{tag}: {'` or `'.join(tag_values(model, tag))}`"
            heading = f"{'###' if top else '####'} {part.title}, {named}"
            lines += [
                heading,
                inspect.cleandoc(model.__doc__ or ""),
                self.table(own) if own else "No further keys.",
            ]
        if part.path in {(section,) for section in OVERLAID}:
            lines.append("Every key of the common part can override it here.")
        return "\n\n".join([*lines, ""])

    def common(self, part: Part) -> dict[str, Key]:
        """Return the keys that most kinds of a part inherit from one class."""
        having: dict[str, list[Key]] = {}
        for key in (key for model in part.models for key in keys(model) if key.name != part.key.tag):
            having.setdefault(key.name, []).append(key)
        return {
            name: found[0]
            for name, found in having.items()
            if len(found) > len(part.models) / 2 and len({key.owner for key in found}) == 1
        }

    def table(self, found: Iterable[Key], part: Part | None = None) -> str:
        def meaning(key: Key) -> str:
            text = key.description or inspect.cleandoc(key.owner.__doc__ or "")
            for model in part.models if part and part.key.tag else ():
                if part and part.key.tag and key.name not in keys_of(model):
                    text += f" Not `{part.key.tag}: {tag_values(model, part.key.tag)[0]}`."
            return text

        rows = [(f"`{key.name}`", self.type_of(key), _default(key), meaning(key)) for key in found]
        return table(("key", "type", "default", "meaning"), rows).rstrip()

    def type_of(self, key: Key) -> str:
        """Return the type of a key, with a link to its part."""
        if not key.models:
            return type_name(TypeAdapter(key.annotation).json_schema())
        listed = "tuple[" in str(key.annotation)
        either = listed and any(bare(each) in key.models for each in branches(key.annotation).values())
        named = "named " if listed and all("name" in model.model_fields for model in key.models) else ""
        what = "object or list of objects" if either else f"list of {named}objects" if listed else "object"
        return f"[{what}](#{self.outline[key.models].anchor})"

    def rules(self) -> str:
        lines = ['<a id="rules"></a>', "", "## Rules about several parts"]
        for title, group in (
            ("Environments and data planes", rules.HEADER_RULES),
            ("Each stack", rules.STACK_RULES),
            ("All stacks together", rules.DEFINITION_RULES),
        ):
            lines += ["", f"### {title}", ""]
            for rule in group:
                severity = "Advisory: " if rule.severity == "advisory" else ""
                lines.append(f"- **{rule.title}.** {severity}{rule.why}")
        return "\n".join([*lines, ""])


def _default(key: Key) -> str:
    field = key.field
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True, validated_data={})
    if default in (None, PydanticUndefined, (), {}):
        return "none"
    if isinstance(default, BaseModel):
        if not default.model_fields_set or default == type(default).model_construct():
            return "see its keys"
        default = default.model_dump(by_alias=True, exclude_unset=True)
    plain = list(default) if isinstance(default, tuple) else default
    written: str = yaml.safe_dump(plain, default_flow_style=True, width=10**9)
    return f"`{written.strip().removesuffix('...').strip()}`"


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
