"""`values.schema.json`: what the chart's values may be, in draft-07, written from the components' arguments.

The form of each text and number is the definition's own, since the arguments are of its types. So a values file that
was edited by hand is refused where the definition would have been, as far as a schema can.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import TypeAdapter

from components import EnvironmentArgs
from stacks.definition.base import Conditional, Section, Without
from stacks.model_keys import bare, tag_values
from stacks.reference.schema import laid_out, or_null

from .arguments import arguments, classes, is_choice, is_list, meant, sentence, tag, title

Schema = dict[str, Any]

DIALECT = "http://json-schema.org/draft-07/schema#"
_DEFINITIONS = "#/definitions/"
_NOT_OURS = ("title", "hint", "default")


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return laid_out(values_schema()) + "\n"


@cache
def values_schema() -> Schema:
    """Return the JSON schema of the values; nobody changes it."""
    writer = _SchemaWriter()
    section = writer.section(EnvironmentArgs)
    section["properties"]["global"] = {"description": "Values that Helm hands to all charts.", "type": "object"}
    return {
        "$schema": DIALECT,
        "title": "Values of the Tidegate chart",
        "description": sentence(EnvironmentArgs),
        "type": "object",
        **section,
        "definitions": dict(sorted(writer.made.items())),
    }


class _SchemaWriter:
    """Turns types into schemas; `made` collects the parts that have keys of their own."""

    def __init__(self) -> None:
        self.made: dict[str, Schema] = {}

    def section(self, owner: type[Section]) -> Schema:
        """Return the keys of a class of arguments. What need not be there may be null as well."""
        properties = {}
        for argument in arguments(owner):
            value = self.value(argument.kind)
            properties[argument.key] = {
                "description": argument.about,
                **(value if argument.required else _or_null(value)),
                **({} if argument.default in (None, (), []) else {"default": argument.default}),
            }
        asked = owner.conditions if issubclass(owner, Conditional) else ()
        required = [each.key for each in arguments(owner) if each.required]
        return {
            "additionalProperties": False,
            **({"required": required} if required else {}),
            "properties": properties,
            **({"allOf": [each.schema() for each in asked]} if asked else {}),
        }

    def value(self, kind: Any) -> Schema:
        """Return the schema of a type."""
        plain = bare(kind)
        if len(kinds := classes(plain)) == 1:
            return self.reference(kinds[0])
        if kinds:
            return self.choice(kinds)
        if is_list(plain):
            items = [each for each in get_args(plain) if each is not ...]
            return {"type": "array", "items": self.value(items[0]), **_sizes(kind, "minItems", "maxItems")}
        if get_origin(plain) in (Mapping, dict):
            names, values = (self.value(each) for each in get_args(plain))
            made = {"type": "object", **_sizes(kind, "minProperties")}
            if "pattern" not in names:
                return made | {"additionalProperties": values}
            # Not `propertyNames`: what Helm says of it does not tell where the key stands.
            allowed = {names["pattern"]: values}
            for each in getattr(kind, "__metadata__", ()):
                allowed |= {each.pattern: {"description": each.why, "not": {}}} if isinstance(each, Without) else {}
            return made | {"patternProperties": allowed, "additionalProperties": False}
        if is_choice(plain):
            return {"anyOf": [self.value(each) for each in get_args(plain)]}
        return _scalar(kind)

    def choice(self, kinds: tuple[type[Section], ...]) -> Schema:
        """Return the schema of a value of one of several classes: of which one its tag says."""
        key, unsaid = tag(kinds), meant(kinds)
        branches, known = [], []
        for kind in kinds:
            values: list[str | None] = [*tag_values(kind, key)]
            known += values
            is_meant = unsaid in values
            chosen: Schema = {} if is_meant else {"required": [key]}
            chosen["properties"] = {key: {"enum": [*values, None] if is_meant else values}}
            branches.append({"if": chosen, "then": self.reference(kind)["allOf"][0]})
        of = {"required": [key], "properties": {key: {"enum": known}}}
        if unsaid is not None:
            of = {"properties": {key: {"enum": [*known, None], "default": unsaid}}}
        return {"type": "object", **of, "allOf": branches}

    def reference(self, part: type[Section]) -> Schema:
        """Return a reference to a part with keys of its own, which is made when it is not there yet."""
        name = title(part)
        if name not in self.made:
            self.made[name] = {}  # taken, should the part refer to itself
            self.made[name] = {"description": sentence(part), **self.section(part)}
        # In draft-07 whatever stands beside a $ref is ignored.
        return {"type": "object", "allOf": [{"$ref": _DEFINITIONS + name}]}


def _sizes(kind: Any, *keys: str) -> Schema:
    """Return how many items a list or a mapping must have."""
    said = getattr(kind, "__metadata__", ())
    made = TypeAdapter(Annotated[(list[Any], *said)]).json_schema() if said else {}
    return {key: made[key] for key in keys if key in made}


def _scalar(kind: Any) -> Schema:
    """Return the schema of a text, a number, a choice."""
    if kind is Any:
        return {}
    if get_origin(kind) is Literal and len(get_args(kind)) == 1:
        return {"const": get_args(kind)[0]}
    return {key: value for key, value in TypeAdapter(kind).json_schema().items() if key not in _NOT_OURS}


def _or_null(schema: Schema) -> Schema:
    """Return the schema of the same value, or of null, with which Helm's users take a value away."""
    if "const" in schema:
        return {"enum": [schema["const"], None]}
    return or_null(schema) if schema else schema
