"""The JSON schema of a definition file, for editors.

Pydantic writes the schema of the typed model, which describes a merged stack. A file is not merged, so a part that
overlays can complete needs only its name here. The schema must accept every definition that `tidegate check` accepts.
"""

import json
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from ..definition import Header, Platform
from ..model_keys import Model
from ..overlays import REMOVE, TAGS

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DEFS = "#/$defs/"
_NULL: Schema = {"type": "null"}
_WIDTH = 120


class Form(Enum):
    """The required keys of a part. The value is the suffix of its definition in the schema."""

    WHOLE = ""  # All required keys: the part has no layers, or layers replace it whole (items without a name).
    LAYER = "Layer"  # Only the name: other layers can have the rest, and `remove: true` removes an item.


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return laid_out(definition_schema()) + "\n"


def laid_out(value: Any, indent: str = "") -> str:
    """Return JSON with each part on one line if it fits, so that a changed key is a changed line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + laid_out(item, inner) for item in value) + f"\n{indent}]"
    items = (f"{inner}{json.dumps(key)}: {laid_out(item, inner)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


def definition_schema() -> Schema:
    """Return the JSON schema of the whole definition file."""
    writer = SchemaWriter((Platform, Header))
    properties = writer.properties("Platform", Form.LAYER)
    for key, part in writer.properties("Header", Form.WHOLE).items():
        name = part_name(writer.source["Header"]["properties"][key]["items"])
        item = writer.section(name, Form.WHOLE)
        item["properties"] |= writer.properties("Platform", Form.LAYER)
        writer.made[name] = item
        properties[key] = part
    return {
        "$schema": DIALECT,
        "title": "Tidegate definition",
        "description": "One definition of the inference platform, for every environment on every data plane.",
        "type": "object",
        "additionalProperties": False,
        "required": writer.source["Header"]["required"],
        "properties": properties,
        "$defs": dict(sorted(writer.made.items())),
    }


class SchemaWriter:
    """Turns pydantic's schemas of some models into Tidegate's. `made` collects the parts with references."""

    never_null: Collection[str] = TAGS
    """Keys that cannot be null although they have a default, because a layer could remove another item's kind."""

    def __init__(self, models: Iterable[Model], generator: type[GenerateJsonSchema] = GenerateJsonSchema) -> None:
        _, source = models_json_schema([(model, "validation") for model in models], schema_generator=generator)
        self.source: Schema = source["$defs"]
        self.made: dict[str, Schema] = {}

    def section(self, name: str, form: Form) -> Schema:
        part = self.source[name]
        section = {"type": "object", "description": part["description"], "additionalProperties": False}
        if required := self.required(name, form):
            section["required"] = required
        section["properties"] = self.properties(name, form)
        return section

    def required(self, name: str, form: Form) -> list[str]:
        """Return the required keys of a part in one form."""
        required = self.source[name].get("required", [])
        return required if form is Form.WHOLE else [key for key in required if key == "name"]

    def properties(self, name: str, form: Form) -> dict[str, Schema]:
        """Return the schemas of the keys of a part. Optional keys can be null."""
        part = self.source[name]
        required = self.required(name, form)
        properties = {}
        for key, source in part["properties"].items():
            value = self.value(source, form)
            value = value if key in required or key in self.never_null else or_null(value)
            about = {"description": source.get("description") or part["description"]}
            default = self.default(source)
            properties[key] = about | value | ({} if default is None else {"default": default})
        if form is Form.LAYER and "name" in required:
            properties[REMOVE] = {"description": "Removes the inherited item of this name.", "const": True}
        return properties

    def value(self, source: Schema, form: Form) -> Schema:
        if "$ref" in source:
            return self.reference(part_name(source), form)
        if "oneOf" in source or "anyOf" in source:
            return self.union(source, form)
        made = {"array": self.array, "object": self.mapping}.get(source.get("type", ""))
        return made(source, form) if made else _scalar(source)

    def reference(self, name: str, form: Form) -> Schema:
        """Return a reference to a part in one form, and add the part if it is new."""
        made = name + form.value
        if made not in self.made:
            self.made[made] = {}  # Reserves the name in case the part refers to itself.
            self.made[made] = self.section(name, form)
        return {"$ref": _DEFS + made}

    def union(self, source: Schema, form: Form) -> Schema:
        """Return the schema of a choice: any of its branches."""
        branches = [branch for branch in source.get("oneOf") or source["anyOf"] if branch != _NULL]
        if len(branches) == 1:
            return self.value(branches[0], form)
        is_tagged = "discriminator" in source or not any("$ref" in branch for branch in branches)
        if form is Form.LAYER and not is_tagged:
            # Without a tag, a layer that changes the branch must set the keys of the first to null.
            return self.joined(branches)
        return {"anyOf": [self.value(branch, form) for branch in branches]}

    def joined(self, branches: list[Schema]) -> Schema:
        """Return the schema of a part with the keys of several branches."""
        properties: dict[str, Schema] = {}
        for branch in branches:
            properties |= self.properties(part_name(branch), Form.LAYER)
        return {"type": "object", "additionalProperties": False, "properties": properties}

    def array(self, source: Schema, form: Form) -> Schema:
        """Return the schema of a list. Layers merge named items, and replace other lists whole."""
        items = source["items"]
        if not self.has_name(items):
            return {"type": "array", "items": self.value(items, Form.WHOLE)} | _only(source, "minItems", "maxItems")
        at_least = _only(source, "minItems") if form is Form.WHOLE else {}
        return {"type": "array", "items": self.value(items, form)} | at_least

    def has_name(self, source: Schema) -> bool:
        """Return whether items have names, by which layers merge them."""
        branches = source.get("oneOf") or source.get("anyOf") or [source]
        return all("$ref" in each and "name" in self.source[part_name(each)].get("required", []) for each in branches)

    def mapping(self, source: Schema, form: Form) -> Schema:
        made: Schema = {"type": "object"}
        if patterns := source.get("patternProperties"):
            made["patternProperties"] = {
                key: each if "not" in each else self.entry(self.value(each, form)) for key, each in patterns.items()
            }
            made["additionalProperties"] = False
        else:
            made["additionalProperties"] = self.entry(self.value(source["additionalProperties"], form))
            made |= {"propertyNames": _scalar(source["propertyNames"])} if "propertyNames" in source else {}
        return made | (_only(source, "minProperties") if form is Form.WHOLE else {})

    def entry(self, value: Schema) -> Schema:
        """Return the schema of a mapping's value, which an overlay can remove."""
        return or_null(value)

    def default(self, source: Schema) -> Any:
        """Return the default, or None if it is empty."""
        default = source.get("default")
        if isinstance(default, dict) and "$ref" in source:
            known = self.source[part_name(source)]["properties"]
            if all(value in (None, [], {}, known[key].get("default")) for key, value in default.items()):
                return None
        if isinstance(default, dict):
            default = {key: value for key, value in default.items() if value not in (None, [], {})}
        return None if default in ([], {}) else default


def part_name(source: Schema) -> str:
    """Return the name of the part of a reference."""
    return str(source["$ref"].removeprefix(_DEFS))


def _only(source: Schema, *keys: str) -> Schema:
    return {key: source[key] for key in keys if key in source}


def _scalar(source: Schema) -> Schema:
    """Return a scalar's schema without keys that other functions add."""
    added = ("title", "hint", "formatName", "default", "description")
    return {key: value for key, value in source.items() if key not in added}


def or_null(schema: Schema) -> Schema:
    """Return the schema of the same value or null, which means that the key is not set."""
    if "const" in schema:
        return {"enum": [schema["const"], None]}
    if isinstance(schema.get("type"), str):
        enum = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return schema | {"type": [schema["type"], "null"]} | enum
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return schema | {choice: [*schema[choice], _NULL]}
    return {"anyOf": [schema, _NULL]}
