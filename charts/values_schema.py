"""`values.schema.json`: the JSON schema (draft-07) of the chart's values, written from the components' arguments.

The arguments have the types of the definition. So the schema refuses a values file that someone edited by hand as the
definition would, as far as a schema can.
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
    """Return the JSON schema of the values. Do not change the result: it is cached."""
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
    """Leaves out keys that are not in the values, and adds conditions among keys."""

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
        del section["type"]  # Each reference has it, because null can remove some values.
        return section | ({"allOf": self.source[name]["allOf"]} if "allOf" in self.source[name] else {})

    def reference(self, name: str, form: Form) -> Schema:
        title = name.removesuffix("Args")
        if title not in self.made:
            self.made[title] = {}  # Reserves the name, in case the part refers to itself.
            self.made[title] = self.section(name, form)
        # In draft-07 readers ignore keys next to a $ref.
        return {"type": "object", "allOf": [{"$ref": _DEFINITIONS + title}]}

    def union(self, source: Schema, form: Form) -> Schema:
        """Return the schema of a choice. The tag selects the branch, so that errors are about that branch."""
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
