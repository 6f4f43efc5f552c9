"""`values.schema.json`: what the chart's values may be, in draft-07, written from the components' arguments.

The form of each text and number is the definition's own, since the arguments are of its types. So a values file that
was edited by hand is refused where the definition would have been, as far as a schema can.
"""

from functools import cache
from typing import Any, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import ModelSchema

from components import EnvironmentArgs
from stacks.definition.base import NOT_IN_VALUES, Conditional
from stacks.model_keys import Model, keys_of
from stacks.reference.schema import Form, SchemaWriter, laid_out, part_name

Schema = dict[str, Any]

DIALECT = "http://json-schema.org/draft-07/schema#"
_DEFINITIONS = "#/definitions/"


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return laid_out(values_schema()) + "\n"


@cache
def values_schema() -> Schema:
    """Return the JSON schema of the values; do not change it."""
    writer = _ValuesWriter([EnvironmentArgs], _ValuesGenerator)
    section = writer.section(EnvironmentArgs.__name__, Form.WHOLE)
    section["properties"]["global"] = {"description": "Values that Helm hands to all charts.", "type": "object"}
    return {
        "$schema": DIALECT,
        "title": "Values of the Tidegate chart",
        "type": "object",
        **section,
        "definitions": dict(sorted(writer.made.items())),
    }


class _ValuesGenerator(GenerateJsonSchema):
    """Without what resolving uses up, and with conditions among keys."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        model = cast("Model", schema["cls"])
        for key in keys_of(model).values():
            if NOT_IN_VALUES in key.field.metadata:
                del made["properties"][key.name]
                made["required"] = [name for name in made.get("required", ()) if name != key.name]
        if issubclass(model, Conditional) and model.conditions:
            made["allOf"] = [condition.schema() for condition in model.conditions]
        return made


class _ValuesWriter(SchemaWriter):
    never_null = ()

    def entry(self, value: Schema) -> Schema:
        return value

    def section(self, name: str, form: Form) -> Schema:
        section = super().section(name, form)
        del section["type"]  # It stands beside each reference: null takes some values away.
        return section | ({"allOf": self.source[name]["allOf"]} if "allOf" in self.source[name] else {})

    def reference(self, name: str, form: Form) -> Schema:
        title = name.removesuffix("Args")
        if title not in self.made:
            self.made[title] = {}  # taken, should the part refer to itself
            self.made[title] = self.section(name, form)
        # In draft-07 whatever stands beside a $ref is ignored.
        return {"type": "object", "allOf": [{"$ref": _DEFINITIONS + title}]}

    def union(self, source: Schema, form: Form) -> Schema:
        """Return the schema of a choice. Its tag decides which branch a value is of, so that errors are about that."""
        if "discriminator" not in source:
            return super().union(source, form)
        key, default = source["discriminator"]["propertyName"], source["discriminator"].get("default")
        tags: dict[str, list[str]] = {}
        for tag, reference in source["discriminator"]["mapping"].items():
            tags.setdefault(part_name({"$ref": reference}), []).append(tag)
        branches = []
        for name, values in tags.items():
            needed: Schema = {} if default in values else {"required": [key]}
            test = needed | {"properties": {key: {"enum": [*values, None] if default in values else values}}}
            branches.append({"if": test, "then": self.reference(name, form)["allOf"][0]})
        known = [tag for values in tags.values() for tag in values]
        of: Schema = {"required": [key], "properties": {key: {"enum": known}}}
        if default is not None:
            of = {"properties": {key: {"enum": [*known, None], "default": default}}}
        return {"type": "object", **of, "allOf": branches}
