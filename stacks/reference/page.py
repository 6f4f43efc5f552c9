"""The reference page: every part of a definition in the order of the file, its keys, its rules."""

import inspect
from collections.abc import Iterable
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
"""Definitions next to this file, with which the page begins."""
_HERE = FilePath(__file__).parent


@dataclass(frozen=True)
class Part:
    """A place in the file that has keys of its own."""

    path: tuple[str, ...]
    key: Key  # At which it stands.

    @property
    def models(self) -> tuple[Model, ...]:
        """What may stand there."""
        return self.key.models

    @property
    def title(self) -> str:
        """Its path in words."""
        return " › ".join(self.path)

    @property
    def anchor(self) -> str:
        """What links to it point at."""
        return "-".join(self.path).replace(" ", "-")

    @property
    def link(self) -> str:
        """A link to it."""
        return f"[{self.title}](#{self.anchor})"


def page() -> str:
    """Return the page as Markdown."""
    return _Page().text()


def keys(model: Model) -> list[Key]:
    """Return the keys of a part: its name and kind, then those that must be there, then the others."""
    first = {"name": 0, "kind": 1, "mode": 1, "cloud": 1}
    return sorted(keys_of(model).values(), key=lambda key: (first.get(key.name, 2), not key.field.is_required()))


def outline() -> dict[tuple[Model, ...], Part]:
    """Return every part of a definition by what stands there, in the order of the file; each at its first place."""
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


def words(schema: dict[str, Any]) -> str:
    """Return the type of a plain value in words, in Markdown."""
    if choices := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(words(each) for each in choices if each.get("type") != "null"))
    if len(known := schema.get("enum") or ([schema["const"]] if "const" in schema else [])) in range(1, 10):
        return ("one of " if len(known) > 1 else "") + ", ".join(f"`{each}`" for each in known)
    if schema["type"] in ("array", "object"):
        patterns = [each for each in schema.get("patternProperties", {}).values() if "not" not in each]
        item = words(
            schema["items"] if "items" in schema else patterns[0] if patterns else schema["additionalProperties"]
        )
        what = "list" if "items" in schema else "mapping"
        return f"{what} of texts" if item.startswith("text") else f"{what}; each {item}"
    if schema["type"] == "string":
        hint, examples = schema.get("hint", ""), schema.get("examples", [])
        such_as = [hint] if hint and " " not in hint else examples
        return (
            f"text such as {' or '.join(f'`{each}`' for each in such_as)}"
            if such_as
            else f"text: {hint}"
            if hint
            else "text"
        )
    name = {"integer": "whole number", "number": "number", "boolean": "true or false"}[schema["type"]]
    return f"{name} {schema['minimum']}–{schema['maximum']}" if "minimum" in schema else name


class _Page:
    def __init__(self) -> None:
        self.outline = outline()
        self.parts = [*self.outline.values()]

    def text(self) -> str:
        about = inspect.cleandoc(overlays.__doc__ or "")
        merging = '<a id="merging"></a>\n\n## How layers are laid over each other\n\n'
        return filled(
            _HERE / "text" / "definition.md",
            **{name: _HERE.joinpath(f"{name}.yaml").read_text("utf-8") for name in WORKED},
            contents=self.contents(),
            merging=f"{merging}Tidegate {about[0].lower()}{about[1:]}\n",
            parts="\n".join([*map(self.section, self.parts), self.rules()]),
        )

    def contents(self) -> str:
        header = {str(field.alias) for field in Header.model_fields.values()}
        rows = []
        for part in self.parts:
            if len(part.path) == 1:
                inner = [other for other in self.parts if len(other.path) == 2 and other.path[0] == part.path[0]]
                links = ", ".join(f"[{other.path[1]}](#{other.anchor})" for other in inner)
                rows.append((f"**{part.link}**" if part.title in header else part.link, part.key.description, links))
        return table(("part", "what it says", "in it"), rows)

    def section(self, part: Part) -> str:
        """Return one part: what it is, its keys, its kinds."""
        top, kinds, described = len(part.path) == 1, len(part.models) > 1, part.key.description
        about = [described] if kinds or top else []
        if not kinds:
            doc = inspect.cleandoc(part.models[0].__doc__ or "")
            about = [doc] if doc.startswith(described.rstrip(".")) else [*about, doc]
        lines = [f'<a id="{part.anchor}"></a>', f"{'##' if top else '###'} {part.title}", *filter(None, about)]
        first, *others = [{key.name: key for key in keys(model)} for model in part.models]
        tag = part.key.tag
        common = {
            name: key
            for name, key in first.items()
            if not (others and name == tag)
            and all(getattr(other.get(name), "owner", None) is key.owner for other in others)
        }
        if common:
            lines += [*(["Keys of every kind:"] if kinds else []), self.table(common.values())]
        for model in part.models if kinds else ():
            own = [key for key in keys(model) if key.name not in common and key.name != tag]
            own.sort(key=lambda key: (not key.field.is_required(), key.owner is not model))
            named = f"with `{own[0].name}`" if tag is None else f"`{tag}: {'` or `'.join(tag_values(model, tag))}`"
            heading = f"{'###' if top else '####'} {part.title}, {named}"
            lines += [heading, inspect.cleandoc(model.__doc__ or ""), self.table(own) if own else "No further keys."]
        if part.path in {(section,) for section in OVERLAID}:
            lines.append("And every key of the common part, saying only what differs.")
        return "\n\n".join([*lines, ""])

    def table(self, found: Iterable[Key]) -> str:
        def meaning(key: Key) -> str:
            return key.description or inspect.cleandoc(key.owner.__doc__ or "")

        rows = [(f"`{key.name}`", self.type_of(key), _default(key), meaning(key)) for key in found]
        return table(("key", "type", "default", "meaning"), rows).rstrip()

    def type_of(self, key: Key) -> str:
        """Return the type of a key in plain words, with a link to the part that stands there."""
        if not key.models:
            return words(TypeAdapter(key.annotation).json_schema())
        listed = "tuple[" in str(key.annotation)
        either = listed and any(bare(each) in key.models for each in branches(key.annotation).values())
        what = "mapping or list" if either else "list" if listed else "mapping"
        named = listed and all("name" in model.model_fields for model in key.models)
        return f"[{what}](#{self.outline[key.models].anchor})" + ("; items have names" if named else "")

    def rules(self) -> str:
        lines = ['<a id="rules"></a>', "", "## Rules that look at more than one part"]
        for title, group in (
            ("Environments and data planes", rules.HEADER_RULES),
            ("Each stack", rules.STACK_RULES),
            ("All stacks together", rules.DEFINITION_RULES),
        ):
            lines += ["", f"### {title}", ""]
            for rule in group:
                advises = "(advisory) " if rule.severity == "advisory" else ""
                lines.append(f"- **{rule.title}.** {advises}{rule.why}")
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
            return "its keys' defaults"
        default = default.model_dump(by_alias=True, exclude_unset=True)
    plain = list(default) if isinstance(default, tuple) else default
    written: str = yaml.safe_dump(plain, default_flow_style=True, width=10**9)
    return f"`{written.strip().removesuffix('...').strip()}`"
