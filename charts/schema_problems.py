"""Says what Helm found wrong in values in words for the person who wrote the file, at the line where it stands."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Literal

from components import EnvironmentArgs
from stacks.definition.base import Conditional
from stacks.load import Document
from stacks.problems import Problem, in_order, listed, shown

from .arguments import all_sections
from .values_schema import Schema, values_schema

PathInValues = tuple[str | int, ...]

_LINE = re.compile(r"\s*- at '(?P<path>.*?)': (?P<what>.*)")
# Lines that only lead to others.
_HEADINGS = re.compile(r"validation failed|'(allOf|anyOf|oneOf)' failed.*")
_CONDITIONS = {
    condition.why: condition
    for part in all_sections(EnvironmentArgs)
    if issubclass(part, Conditional)
    for condition in part.conditions
}
_NO_KEY = "there is no such key here"
_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


def is_refusal(message: str) -> bool:
    """Say whether Helm's message is about values that the schema refuses."""
    return "values don't meet the specifications of the schema" in message


def problems(message: str, document: Document) -> list[Problem]:
    """Return what is wrong with a values file, one problem each, in the order of the file."""
    found: dict[tuple[PathInValues, str], Problem] = {}
    for line in message.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or _HEADINGS.fullmatch(match["what"]):
            continue
        path = _path(match["path"], document)
        said = list(_conditions(path, match["what"], document)) or _said(path, match["what"], document)
        for where, what, do in said:
            at: Literal["key", "value"] = "key" if what == _NO_KEY else "value"
            found.setdefault((where, what), document.problem(where, what, "", do, at=at))
    return in_order(found.values())


def _path(pointer: str, document: Document) -> PathInValues:
    """Return a JSON pointer as a path; a number is an item where the file has a list."""
    path: list[str | int] = []
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        path.append(int(name) if name.isdigit() and not isinstance(document.get(path), dict) else name)
    return tuple(path)


def _conditions(path: PathInValues, what: str, document: Document) -> Iterator[tuple[PathInValues, str, str]]:
    """Yield the conditions of a section that do not hold, where it is them that a message is about."""
    at_key = what == "'enum' failed" or (what == "'not' failed" and "not" not in _schema_at(path, document))
    section = path[:-1] if at_key else path
    schema, value = _schema_at(section, document), document.get(section)
    missing = re.match(r"missing propert(?:y|ies) '(.*?)'", what)
    if (at_key or (missing and missing[1] not in schema.get("required", []))) and isinstance(value, dict):
        asked = [each["description"] for each in schema.get("conditions", [])]
        yield from ((section, why, "") for why in asked if _CONDITIONS[why].is_broken(value))


def _said(path: PathInValues, what: str, document: Document) -> Iterator[tuple[PathInValues, str, str]]:
    """Yield where a mistake is, what it is, and what to do about it."""
    schema = _schema_at(path, document)
    about = schema.get("description", "")
    if match := re.fullmatch(r"additional properties (.*) not allowed", what):
        known = [key for key in schema.get("properties", {}) if key != "global"]
        for name in _quoted(match[1]):
            if "patternProperties" in schema:
                yield (*path, name), _NO_KEY, "The key has not the form of one that Kubernetes takes."
                continue
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            yield (*path, name), _NO_KEY, f"{hint}Keys here: {listed(known)}."
    elif match := re.fullmatch(r"missing propert(?:y|ies) (.*)", what):
        for name in _quoted(match[1]):
            yield path, f"{name} is missing", _schema_at((*path, name), document).get("description", "")
    elif match := re.fullmatch(r"got (\w+), want (.*)", what):
        wanted = " or ".join(_KINDS.get(word, word) for word in match[2].split(" or ") if word != "null")
        yield path, f"this is {_KINDS.get(match[1], match[1])}, and {wanted} is wanted", about
    elif match := re.fullmatch(r"(minimum|maximum): got .*", what):
        bound = f"{'at least' if match[1] == 'minimum' else 'at most'} {schema[match[1]]:,}"
        yield path, f"{shown(document.get(path))} is out of bounds: it must be {bound}", about
    elif match := re.fullmatch(r"(min|max)(Items|Properties|Length): got (.*), want (.*)", what):
        items = "characters" if match[2] == "Length" else "items"
        bound = "at least" if match[1] == "min" else "at most"
        yield path, f"this has {match[3]} {items}, and it must have {bound} {match[4]}", about
    elif re.fullmatch(r"value must be (one of )?.*", what):
        yield path, f"{shown(document.get(path))} is none of the choices: {what.removeprefix('value must be ')}", about
    elif what == "'not' failed":
        refused = schema["not"] if schema["not"] else schema
        at = shown(document.get(path) if schema["not"] else path[-1])
        yield path, f"{at} {refused['description']}", "" if refused is schema else about
    elif "does not match pattern" in what:
        yield path, f"{shown(document.get(path))} has not the form that is wanted", schema["patternErrorMessage"]
    else:
        yield path, what, about


def _quoted(text: str) -> list[str]:
    return re.findall(r"'(.*?)'(?:, |$)", text)


def _schema_at(path: PathInValues, document: Document) -> Schema:
    """Return the schema of a place in the values; an empty one where there is none."""
    whole = values_schema()
    node = _followed(whole, whole, document.tree)
    for number, step in enumerate(path):
        if isinstance(step, int):
            below: Any = node.get("items", {})
        else:
            free = [each for pattern, each in node.get("patternProperties", {}).items() if re.search(pattern, step)]
            below = node.get("properties", {}).get(step, [node.get("additionalProperties", {}), *free][-1])
        node = _followed(below if isinstance(below, dict) else {}, whole, document.get(path[: number + 1]))
    return node


def _followed(schema: Schema, whole: Schema, value: Any) -> Schema:
    """Return a schema with the parts that it refers to in it: of a choice, that which the value's tag names."""
    for part in schema.get("allOf", []):
        if "if" in part:
            ((key, chosen),) = part["if"]["properties"].items()
            if not isinstance(value, dict) or value.get(key) not in chosen["enum"]:
                continue
            part = part["then"]
        found = whole["definitions"][part["$ref"].rpartition("/")[2]]
        properties = {**schema.get("properties", {}), **found["properties"]}
        schema = {**found, **schema, "properties": properties, "conditions": found.get("allOf", [])}
    return schema
