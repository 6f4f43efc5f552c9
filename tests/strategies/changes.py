"""Every change of one place of a definition, as its schema has it: another value, a key more, a key or an item less."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

from pydantic.json_schema import models_json_schema

from stacks.definition import Header, Platform
from stacks.overlays import TAGS
from tests.cases import GONE

Path = tuple[str | int, ...]
Schema = dict[str, Any]
Change = tuple[Path, Any, str]
"""A place, what stands there instead (`GONE` for nothing), and the section and key that are changed: `Pool.scratch`."""

_SECTIONS: dict[str, Schema] = models_json_schema([(Platform, "validation"), (Header, "validation")])[1]["$defs"]
_ROOT = {**_SECTIONS["Header"], "properties": _SECTIONS["Header"]["properties"] | _SECTIONS["Platform"]["properties"]}
for _name in ("Environment", "DataPlane"):  # over which keys of the common part may be laid
    _SECTIONS[_name]["properties"] |= {
        key: part
        for key, part in _SECTIONS["Platform"]["properties"].items()
        if key not in _SECTIONS[_name]["required"]
    }
_SAMPLES = (
    *("a", "b1", "1Gi", "40Gi", "300m", "7", "/", "/a", "v1", "UTC", "Asia/Tokyo", "0 2 * * *", "2031-05-05"),
    *("1g.10gb", "2g.20gb", "NVIDIA-A100-SXM4-80GB", "NVIDIA-L4", "mig.nvidia.com", "gpu.nvidia.com", "domino"),
    *("10.1.0.0/16", "192.0.2.0/25", "host.example.com", "https://idp.example.com/realm", "api-keys", "example.com/a"),
    *("s3://bucket/a", "fs-0001", "fsap-0001", "StatefulSet/a", "volumes-are-retained", "--a-b=1", "A", "ca.crt"),
    *("arn:aws:iam::123456789012:role/a", "a@b.iam.gserviceaccount.com", "00000000-0000-0000-0000-00000000000b"),
)
"""Texts of which one fits nearly every pattern."""


@cache
def keys() -> set[str]:
    """Return every key of every section, as `Pool.scratch`, except those that choose the section."""
    common = _SECTIONS["Platform"]["properties"]
    return {
        f"{name}.{key}"
        for name, section in _SECTIONS.items()
        for key in section.get("properties", ())
        if (name not in ("Header", "Environment", "DataPlane") or key not in common) and key not in TAGS
    }


def changes(tree: Any) -> Iterator[Change]:
    """Yield every change of a definition: of what stands there, and of what could."""
    names = [*dict.fromkeys(_names(tree))]
    for path, value, key in _changes(_ROOT, tree, (), "Definition", names):
        root, _, below = key.partition(".")
        section = "Header" if below in _SECTIONS["Header"]["properties"] else "Platform"
        yield path, value, f"{section}.{below}" if root == "Definition" else key


def changed(tree: Any, path: Path, value: Any) -> Any:
    """Return a tree with a change. Unchanged parts are the same objects."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    parts: dict[str | int, Any] = dict(enumerate(tree)) if isinstance(tree, list) else dict(tree)
    parts[step] = changed(parts.get(step), rest, value)
    there = {key: item for key, item in parts.items() if item is not GONE}
    return [*there.values()] if isinstance(tree, list) else there


def _names(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict) and isinstance(tree.get("name"), str):
        yield tree["name"]
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _names(part)


def _branches(schema: Schema, title: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield what a value may be, with the section's name where it is one."""
    if "$ref" in schema:
        title = schema["$ref"].rpartition("/")[2]
        yield from _branches(_SECTIONS[title], title)
    elif choices := schema.get("oneOf") or schema.get("anyOf"):
        for choice in choices:
            yield from _branches(choice, title)
    elif schema.get("type") != "null":
        yield title, schema


def _changes(schema: Schema, value: Any, path: Path, key: str, names: list[str]) -> Iterator[Change]:
    if not isinstance(value, dict | list):
        yield from ((path, new, key) for new in _values(schema, names, value))
        return
    others = [branch for branch in _branches(schema) if not _fits(branch[1], value)]
    mine = next((branch for branch in _branches(schema) if _fits(branch[1], value)), None)
    kept = {"name": value["name"]} if isinstance(value, dict) and "name" in value else {}
    for title, branch in others if isinstance(value, dict) else ():
        if branch.get("type") == "array":
            yield path, [value], key
            continue
        yield from ((path, new | kept, f"{title}.{[*new][-1]}") for new in _sections(branch, names, 1))
    if mine is None:
        return
    title, branch = mine
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield (*path, place), GONE, key
            yield from _changes(branch["items"], item, (*path, place), key, names)
        yield from ((path, [*value, new], key) for new in islice(_values(branch["items"], names), 1))
        return
    known = branch.get("properties", {})
    for step, part in value.items():
        below = known.get(step) or _values_of(branch)
        called = f"{title or key}.{step}" if step in known else key
        yield (*path, step), GONE, called
        yield (*path, step), None, called
        if below:
            yield from _changes(below, part, (*path, step), called, names)
    for step, part in known.items():
        if step not in value:
            called = f"{title or key}.{step}"
            # Of what may be laid over the common part, one: there they are all.
            most = 1 if title in ("Environment", "DataPlane") and called not in keys() else None
            yield from (((*path, step), new, called) for new in islice(_values(part, names), most))
    if not known and (below := _values_of(branch)):
        yield from (((*path, step), new, key) for step in _keys_of(branch) for new in islice(_values(below, names), 1))


def _fits(schema: Schema, value: Any) -> bool:
    """Return whether a value is of this branch, by its tag or its keys."""
    if isinstance(value, list):
        return schema.get("type") == "array"
    known = schema.get("properties")
    if schema.get("type") != "object" or known is None:
        return schema.get("type") == "object"
    tags = [tag for tag in TAGS if tag in known and tag in value]
    return all(value[tag] in _only(known[tag]) for tag in tags) and value.keys() <= known.keys()


def _only(schema: Schema) -> list[Any]:
    return schema.get("enum") or [schema.get("const")]


def _values_of(schema: Schema) -> Schema | None:
    """Return what stands behind the keys of a mapping that may have any."""
    patterns = [part for part in schema.get("patternProperties", {}).values() if "not" not in part]
    more = schema.get("additionalProperties")
    return patterns[0] if patterns else more if isinstance(more, dict) else None


def _keys_of(schema: Schema) -> list[str]:
    known = schema.get("propertyNames", {"type": "string"})
    pattern = next((key for key, part in schema.get("patternProperties", {}).items() if "not" not in part), "")
    return [*islice(_texts({**known, "pattern": known.get("pattern", pattern)}, []), 1)]


def _values(schema: Schema, names: list[str], old: Any = None, depth: int = 2) -> Iterator[Any]:
    """Yield a few values that may stand in the place of an old one."""
    for _, branch in _branches(schema):
        kind = branch.get("type")
        made: Iterator[Any]
        if "enum" in branch or "const" in branch:
            made = iter(_only(branch))
        elif kind == "boolean":
            made = iter((True, False))
        elif kind in ("integer", "number"):
            made = _numbers(branch, old)
        elif kind == "string":
            made = _texts(branch, names, old)
        elif kind == "array":
            made = ([item] for item in _values(branch["items"], names, depth=depth))
        else:
            made = _sections(branch, names, depth)
        yield from (value for value in made if value != old or type(value) is not type(old))


def _numbers(schema: Schema, old: Any) -> Iterator[Any]:
    least: Any = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most: Any = schema.get("maximum", 10**6)
    begin: Any = old if isinstance(old, int | float) else schema.get("default") or least
    step = 1 if schema["type"] == "integer" else 0.25
    yield from dict.fromkeys(new for new in (begin + step, begin - step, least, most) if least <= new <= most)


def _texts(schema: Schema, names: list[str], old: Any = None) -> Iterator[str]:
    pattern, least, most = schema.get("pattern", ""), schema.get("minLength", 0), schema.get("maxLength", 10**6)
    fits: Callable[[str], object] = lambda text: least <= len(text) <= most and re.search(pattern, text)  # noqa: E731
    own: list[str] = []
    if isinstance(old, str):
        number = re.search(r"[0-9]+", old)
        own = [f"{old}x", *([f"{old[: number.start()]}{int(number[0]) + 1}{old[number.end() :]}"] if number else [])]
    for some in (own, [*names, *(each for each in schema.get("examples", ()))], _SAMPLES):
        yield from islice(filter(fits, dict.fromkeys(some)), 2 if some is own else 1)


def _sections(schema: Schema, names: list[str], depth: int) -> Iterator[Any]:
    """Yield a section with its required keys, and with each of its other keys in addition."""
    known = schema.get("properties")
    if known is None:
        below = _values_of(schema)
        yield from ({key: new} for key in _keys_of(schema) for new in islice(_values(below or {}, names), 1))
        return
    needed = [key for key in known if key in schema.get("required", ()) or key in TAGS]
    made = {key: next(_values(known[key], names, depth=0), None) for key in needed}
    yield made
    for key in known if depth else ():
        yield from ({**made, key: new} for new in islice(_values(known[key], names, depth=depth - 1), 2))
